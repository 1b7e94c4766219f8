// A frame of /v1/live as lines for people. Pure; what the server says is not trusted.
#pragma once

#include <cstddef>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

namespace skein::apps {

struct TopSize {
  size_t columns = 100;
  size_t rows = 40;
};

// `before` is an earlier frame, from which rates are made; null where there is none.
std::vector<std::string> top_lines(const nlohmann::json& before, const nlohmann::json& now,
                                   TopSize size);

}  // namespace skein::apps
