// What the endpoints share: answers, and the way from a request to a loaded model.
#pragma once

#include <functional>
#include <string>

#include "server/context.h"
#include "server/router.h"

namespace skein {

void send_error(const Call& call, const http::Responder& responder, const api::Error& error);
void send_json(const http::Responder& responder, std::string body);
// What the store could not do, in words about storage: what api::from_status() says of a server
// that is not ready would be wrong here.
api::Error store_error(const Status& status);
// Sends it; what is our own fault is logged.
void send_store_error(const Call& call, const http::Responder& responder, const Status& status);

// What of the query a list takes: after, limit (1 to `max_limit`, which is also the default unless
// one is given), order (asc or desc) and purpose.
api::Parsed<ListOptions> list_options(const http::RequestHead& head, uint32_t default_limit,
                                      uint32_t max_limit);

// Answers with a page, {"object":"list","data":[...],"first_id":...,"last_id":...,"has_more":...}:
// written on a worker, for it may be long. `json` turns an item into text.
template <class T>
void send_page(ServerContext& context, const Call& call, const http::Responder& responder,
               Result<Page<T>> page, std::string (*json)(const T&));

// Runs `work` with the model that is wanted, loaded and leased while it runs; or tells the client
// why that is not possible. On this thread when the model is loaded already, on
// ServerContext::workers otherwise.
using ModelWork = std::function<void(ServedModel& model)>;
void with_model(ServerContext& context, const Call& call, const std::string& wanted,
                const http::Responder& responder, ModelWork work);

void append_id_or_null(std::string& out, std::string_view id);

template <class T>
std::string page_text(const Page<T>& page, std::string (*json)(const T&)) {
  std::string out = R"({"object":"list","data":[)";
  for (size_t i = 0; i < page.items.size(); ++i) {
    if (i > 0) out.push_back(',');
    out.append(json(page.items[i]));
  }
  out.append(R"(],"first_id":)");
  append_id_or_null(out, page.items.empty() ? std::string_view() : page.items.front().id);
  out.append(R"(,"last_id":)");
  append_id_or_null(out, page.items.empty() ? std::string_view() : page.items.back().id);
  return out.append(page.has_more ? R"(,"has_more":true})" : R"(,"has_more":false})");
}

template <class T>
void send_page(ServerContext& context, const Call& call, const http::Responder& responder,
               Result<Page<T>> page, std::string (*json)(const T&)) {
  if (page.status().code() == Code::kNotFound) {
    return send_error(call, responder, api::invalid_field("after", "It is not the id of an item."));
  }
  if (!page.ok()) return send_store_error(call, responder, page.status());
  const auto refuse = [&context, dialect = call.route->dialect, responder] {
    responder.send(error_response(dialect, context.no_worker()));
  };
  const auto write = [responder, json, items = std::move(*page)] {
    send_json(responder, page_text(items, json));
  };
  if (!context.workers.post(call.priority, write, refuse)) refuse();
}

}  // namespace skein
