// Cross-origin requests of browsers (the Fetch standard's CORS).
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "server/http/message.h"

namespace skein::http {

// The answer to a preflight; nullopt when the request is none, or CORS is off.
std::optional<Response> preflight(const std::vector<std::string>& origins, const RequestHead& head);

// The fields that let the page at `origin` read an answer; none when it may not.
std::vector<Header> cors_headers(const std::vector<std::string>& origins, std::string_view origin);

}  // namespace skein::http
