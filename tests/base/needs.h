// What a test needs and a machine may lack: a package, a command, the default model. Without it the
// test is skipped, which a person who builds on a train wants; with SKEIN_REQUIRE=all in the
// environment, as in .ci/run, it fails, so that no test goes missing unseen. What the tree itself
// holds needs no such question, and what takes other hardware is labelled `hardware`.
#pragma once

#include <cstdlib>
#include <gtest/gtest.h>
#include <string_view>

namespace skein::testing {

inline bool everything_is_required() {
  const char* value = std::getenv("SKEIN_REQUIRE");
  return value != nullptr && std::string_view(value) == "all";
}

}  // namespace skein::testing

#define SKEIN_NEEDS(present, otherwise)                                      \
  do {                                                                       \
    if (!(present)) {                                                        \
      if (::skein::testing::everything_is_required()) FAIL() << (otherwise); \
      GTEST_SKIP() << (otherwise);                                           \
    }                                                                        \
  } while (false)
