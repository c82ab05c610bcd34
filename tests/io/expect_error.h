#pragma once

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "dcformer/base/error.h"

namespace dcformer::test {

/// Calls f and expects an Error whose text holds all of the parts.
template <typename F>
void expect_error(F&& f, const std::vector<std::string>& parts) {
  try {
    f();
  } catch (const Error& e) {
    for (const std::string& part : parts) EXPECT_THAT(e.what(), ::testing::HasSubstr(part));
    return;
  }
  ADD_FAILURE() << "no error, expected one with: " << ::testing::PrintToString(parts);
}

}  // namespace dcformer::test
