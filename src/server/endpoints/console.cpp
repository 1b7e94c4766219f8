// The console: the page at / and its parts, which are compiled into the binary (web/).
#include "server/console_files.h"
#include "server/endpoints/reply.h"

namespace skein::endpoints {
namespace {

void send_file(const Call& call, const http::Responder& responder, std::string_view name) {
  for (const ConsoleFile& file : console_files()) {
    if (file.name != name) continue;
    // Browsers ask again each time, and are told that nothing has changed: a new version of skein
    // is never mixed with an old page.
    http::Response response{
        .content_type = std::string(file.content_type),
        .headers = {{"ETag", std::string(file.etag)}, {"Cache-Control", "no-cache"}}};
    const std::string* known = call.request.head.header("if-none-match");
    if (known != nullptr && http::list_has_token(*known, file.etag)) {
      response.status = 304;
    } else {
      response.body = file.bytes;
    }
    responder.send(std::move(response));
    return;
  }
  send_error(call, responder, api::not_found());
}

}  // namespace

void console_page(ServerContext&, Call& call, const http::Responder& responder) {
  send_file(call, responder, "index.html");
}

void console_part(ServerContext&, Call& call, const http::Responder& responder) {
  send_file(call, responder, call.id);
}

}  // namespace skein::endpoints
