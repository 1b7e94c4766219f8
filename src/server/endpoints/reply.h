// Endpoints share these: the answers that several of them give, and the way from a call to a loaded
// model.
//
// A call is answered exactly once, by one of these functions or by its Responder; none of them
// waits, and what takes long runs on a worker of its own turn.
#pragma once

#include <functional>
#include <string>

#include "server/context.h"
#include "server/json.h"
#include "server/router.h"

namespace skein {

void send_error(const Call& call, const http::Responder& responder, const api::Error& error);
void send_json(const http::Responder& responder, std::string body);
// Tells what the store could not do; a failure of the server itself is also logged.
void send_store_error(const Call& call, const http::Responder& responder, const Status& status);

// A list takes these from the query: after, limit (1 to `max_limit`; `default_limit` where it is
// absent), order (asc or desc) and purpose.
api::Parsed<ListOptions> list_options(const http::RequestHead& head, uint32_t default_limit,
                                      uint32_t max_limit);

// Who called, for an answer that comes when the call itself is gone.
struct Caller {
  Caller(const Call& call)  // NOLINT(google-explicit-constructor): a call is one
      : dialect(call.route->dialect), priority(call.priority), key_id(call.principal->key_id) {}
  api::Dialect dialect;
  Priority priority;
  std::string key_id;
};

// Runs it on one of ServerContext::workers, in the caller's turn; answers with an error where none
// takes it.
void on_worker(ServerContext& context, const Caller& caller, const http::Responder& responder,
               std::function<void()> run);

// Runs `work` with the model that is wanted, loaded and leased while it runs; or tells the client
// why that is not possible. On this thread when the model is loaded already, on a worker otherwise.
using ModelWork = std::function<void(ServedModel& model)>;
void with_model(ServerContext& context, const Call& call, const std::string& wanted,
                const http::Responder& responder, ModelWork work);

// {"temperature":0.2,"top_p":0.9,...}: how tokens are drawn; `source` is who said so, or empty.
std::string sampling_json(const SamplingParams& params, std::string_view source);

// {"object":"list","data":[...],"first_id":...,"last_id":...,"has_more":...}
template <class T>
std::string page_text(const Page<T>& page, std::string (*item_text)(const T&)) {
  std::string out = R"({"object":"list","data":)";
  json::append_list(out, page.items, [&](const T& item) { out.append(item_text(item)); });
  const bool is_empty = page.items.empty();
  json::append_member_or_null(out, "first_id", is_empty ? std::string() : page.items.front().id);
  json::append_member_or_null(out, "last_id", is_empty ? std::string() : page.items.back().id);
  json::append_member(out, "has_more", page.has_more);
  return out.append("}");
}

// Answers with a page, which is written on a worker, for it may be long. `json` turns an item into
// text.
template <class T>
void send_page(ServerContext& context, const Call& call, const http::Responder& responder,
               Result<Page<T>> page, std::string (*json)(const T&)) {
  if (page.status().code() == Code::kNotFound) {
    return send_error(call, responder, api::invalid_field("after", "It is not the id of an item."));
  }
  if (!page.ok()) return send_store_error(call, responder, page.status());
  on_worker(context, call, responder, [responder, json, items = std::move(*page)] {
    send_json(responder, page_text(items, json));
  });
}

}  // namespace skein
