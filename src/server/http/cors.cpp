#include "server/http/cors.h"

#include <algorithm>

namespace skein::http {

std::optional<Response> preflight(const std::vector<std::string>& origins,
                                  const RequestHead& head) {
  if (origins.empty() || head.method != "OPTIONS" ||
      head.header("access-control-request-method") == nullptr) {
    return std::nullopt;
  }
  Response response;
  response.status = 204;
  response.headers = {{"Access-Control-Allow-Methods", "GET, HEAD, POST, DELETE, OPTIONS"},
                      {"Access-Control-Max-Age", "600"}};
  if (const std::string* wanted = head.header("access-control-request-headers")) {
    response.headers.push_back({"Access-Control-Allow-Headers", *wanted});
  }
  return response;
}

std::vector<Header> cors_headers(const std::vector<std::string>& origins, std::string_view origin) {
  if (origins.empty() || origin.empty()) return {};
  const std::string exposed = "X-Request-Id, Retry-After";
  if (std::find(origins.begin(), origins.end(), "*") != origins.end()) {
    return {{"Access-Control-Allow-Origin", "*"}, {"Access-Control-Expose-Headers", exposed}};
  }
  // Browsers send schemes and hosts in lower case, however an operator writes them.
  const auto is_it = [&](const std::string& listed) {
    return equals_ignoring_case(listed, origin);
  };
  if (std::none_of(origins.begin(), origins.end(), is_it)) return {{"Vary", "Origin"}};
  return {{"Access-Control-Allow-Origin", std::string(origin)},
          {"Access-Control-Expose-Headers", exposed},
          {"Vary", "Origin"}};
}

}  // namespace skein::http
