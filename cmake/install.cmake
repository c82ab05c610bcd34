# What `cmake --install` puts in place for users of the library: one shared library, the headers of the
# composed attention, a CMake package and a pkg-config file. The headers include the standard library
# alone; what the library itself uses is linked into it.
include(GNUInstallDirs)
include(CMakePackageConfigHelpers)

add_library(dcformer_shared SHARED $<TARGET_OBJECTS:dcformer_core>)
set_target_properties(dcformer_shared PROPERTIES
  OUTPUT_NAME dcformer EXPORT_NAME dcformer VERSION ${PROJECT_VERSION} SOVERSION 0)
target_link_libraries(dcformer_shared PRIVATE dcformer_libraries)
target_compile_features(dcformer_shared INTERFACE cxx_std_20)
target_include_directories(dcformer_shared INTERFACE $<INSTALL_INTERFACE:${CMAKE_INSTALL_INCLUDEDIR}>)

set(DCFORMER_PUBLIC_HEADERS
  base/allocator.h base/context.h base/error.h base/thread_pool.h
  ops/composed_attention.h
  tensor/dtype.h tensor/view.h)
foreach(header ${DCFORMER_PUBLIC_HEADERS})
  get_filename_component(folder ${header} DIRECTORY)
  install(FILES dcformer/${header} DESTINATION ${CMAKE_INSTALL_INCLUDEDIR}/dcformer/${folder})
endforeach()

install(TARGETS dcformer RUNTIME DESTINATION ${CMAKE_INSTALL_BINDIR})
install(TARGETS dcformer_shared EXPORT dcformer LIBRARY DESTINATION ${CMAKE_INSTALL_LIBDIR})
install(EXPORT dcformer NAMESPACE dcformer:: FILE dcformer-config.cmake
  DESTINATION ${CMAKE_INSTALL_LIBDIR}/cmake/dcformer)
write_basic_package_version_file(${CMAKE_CURRENT_BINARY_DIR}/dcformer-config-version.cmake
  COMPATIBILITY SameMinorVersion)
install(FILES ${CMAKE_CURRENT_BINARY_DIR}/dcformer-config-version.cmake
  DESTINATION ${CMAKE_INSTALL_LIBDIR}/cmake/dcformer)
# The prefix is known when it is installed: `cmake --install build --prefix DIR`.
install(CODE "set(CMAKE_INSTALL_LIBDIR \"${CMAKE_INSTALL_LIBDIR}\")
  set(CMAKE_INSTALL_INCLUDEDIR \"${CMAKE_INSTALL_INCLUDEDIR}\")
  set(PROJECT_VERSION \"${PROJECT_VERSION}\")
  configure_file(\"${CMAKE_CURRENT_SOURCE_DIR}/cmake/dcformer.pc.in\"
    \"${CMAKE_CURRENT_BINARY_DIR}/dcformer.pc\" @ONLY)")
install(FILES ${CMAKE_CURRENT_BINARY_DIR}/dcformer.pc DESTINATION ${CMAKE_INSTALL_LIBDIR}/pkgconfig)
