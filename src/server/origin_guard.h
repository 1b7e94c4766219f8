// OriginGuard keeps the pages of other sites away from a server without keys.
//
// Such a server trusts whoever can reach it, and a browser on the same machine can. A page from
// elsewhere may make it send requests, either openly (they then carry a foreign Origin or
// Sec-Fetch-Site) or by having its own name resolve to this machine's address (they then carry a
// foreign Host). Programs send neither field and name the server as it is called.
//
// Immutable: any thread.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "server/api/errors.h"
#include "server/http/message.h"

namespace skein {

class OriginGuard {
 public:
  struct Options {
    std::vector<std::string> hosts;  // names and addresses beside localhost, 127.0.0.1 and [::1]
    bool any_address = false;        // whatever is written as an IP address: no name, no rebinding
    std::vector<std::string> cors_origins;  // as in http::ServerOptions
    bool is_probe = false;                  // of the probe port, also of a server with keys
  };
  explicit OriginGuard(Options options);

  // Why the request is turned away; nothing when it may come in. `is_page`: it asks for a page that
  // may be opened from anywhere, as by a link on another site.
  std::optional<api::Error> check(const http::RequestHead& head, bool is_page) const;

 private:
  bool knows_host(std::string_view authority) const;
  std::optional<api::Error> check_host(std::string_view host, std::string_view target) const;
  // Who it is that refuses, and what can be done about it.
  std::string_view subject() const;
  std::string_view remedy() const;

  Options options_;
};

// Whether the Content-Type names this media type (in lower case); parameters are allowed.
bool is_media_type(std::string_view content_type, std::string_view expected);

}  // namespace skein
