// Bodies of requests, put together from their fields, and what becomes of hostile ones.
#pragma once

#include <functional>
#include <gtest/gtest.h>
#include <initializer_list>
#include <string>
#include <string_view>
#include <vector>

#include "server/api/fields.h"

namespace skein::api::testing {

inline constexpr const char* kHello = R"("messages":[{"role":"user","content":"hi"}])";

inline std::string join(std::initializer_list<std::string_view> parts) {
  std::string out;
  for (const std::string_view part : parts) out.append(part);
  return out;
}

inline std::string chat(std::string_view fields) {
  return join({"{", kHello, fields.empty() ? "" : ",", fields, "}"});
}

// A body, and what is said of it.
struct Hostile {
  std::string body;
  std::string param;
  std::string code = "";
  int status = 400;
};

inline void expect_all(const std::vector<Hostile>& bodies,
                       const std::function<Problem(const std::string&)>& parse) {
  for (const Hostile& hostile : bodies) {
    SCOPED_TRACE(hostile.body.substr(0, 200));
    const Problem problem = parse(hostile.body);
    ASSERT_TRUE(problem.has_value());
    EXPECT_EQ(problem->status, hostile.status);
    EXPECT_EQ(problem->param, hostile.param) << problem->message;
    EXPECT_EQ(problem->code, hostile.code);
    EXPECT_FALSE(problem->message.empty());
    EXPECT_LT(problem->message.size(), 300U) << "a client's text is not sent back to it";
  }
}

template <class T>
Problem problem_of(Parsed<T> parsed) {
  return parsed.ok() ? Problem() : Problem(parsed.error());
}

}  // namespace skein::api::testing
