#pragma once

namespace dcformer::test {

/// Whether this is a build with AddressSanitizer: it runs at a tenth of the speed, and holds freed
/// memory back for a while.
#if defined(__SANITIZE_ADDRESS__)
constexpr bool kAddressSanitizer = true;
#elif defined(__has_feature)
constexpr bool kAddressSanitizer = __has_feature(address_sanitizer);
#else
constexpr bool kAddressSanitizer = false;
#endif

}  // namespace dcformer::test
