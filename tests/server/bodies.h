// Bodies of requests, put together from their fields.
#pragma once

#include <initializer_list>
#include <string>
#include <string_view>

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

}  // namespace skein::api::testing
