// What /v1/responses has kept: continued, looked up, listed and deleted.
#include <algorithm>
#include <utility>

#include "server/answer/recall.h"
#include "server/endpoints/continued.h"
#include "server/endpoints/reply.h"

namespace skein::endpoints {
namespace {

using json::append_member;

constexpr uint32_t kDefaultItems = 20;
constexpr uint32_t kMaxItems = 100;

// Where two things pay for a request.
struct BothMemories {
  std::shared_ptr<void> body;
  std::shared_ptr<void> before;
};

// What stood before the answer: the earlier turns, and the response's own input.
api::Parsed<std::vector<json::Value>> input_items(const Recalled& recalled) {
  std::vector<json::Value> items;
  for (size_t i = 0; i < recalled.turns.size(); ++i) {
    const ConversationTurn& turn = recalled.turns[i];
    const bool is_last = i + 1 == recalled.turns.size();
    for (const std::string* text : {&turn.input, &turn.output}) {
      if (is_last && text == &turn.output) break;
      auto list = api::read_kept_items(*text);
      if (!list.ok()) return list.error();
      for (size_t place = 0; place < list->size(); ++place) {
        items.push_back(api::shown_item(std::move((*list)[place]), turn.id, place));
      }
    }
  }
  return items;
}

api::Parsed<std::string> items_page(const Recalled& recalled, const ListOptions& options) {
  auto items = input_items(recalled);
  if (!items.ok()) return items.error();
  if (!options.oldest_first) std::reverse(items->begin(), items->end());
  auto from = items->begin();
  if (!options.after.empty()) {
    from = std::find_if(items->begin(), items->end(),
                        [&](const json::Value& item) { return item["id"] == options.after; });
    if (from == items->end()) return api::invalid_field("after", "It is not the id of an item.");
    ++from;
  }
  const auto left = static_cast<size_t>(items->end() - from);
  const auto to = from + static_cast<ptrdiff_t>(std::min<size_t>(left, options.limit));
  std::string out = R"({"object":"list","data":)";
  json::append_list(out, std::vector<json::Value>(from, to),
                    [&](const json::Value& item) { out.append(item.dump()); });
  const auto id_of = [&](auto item) {
    return from == to ? std::string() : std::string((*item)["id"]);
  };
  json::append_member_or_null(out, "first_id", id_of(from));
  json::append_member_or_null(out, "last_id", id_of(to - (from == to ? 0 : 1)));
  append_member(out, "has_more", to != items->end());
  return out.append("}");
}

}  // namespace

void with_conversation(
    ServerContext& context, Call& call, const http::Responder& responder, bool counting,
    std::function<void(Call& call, api::Parsed<api::ChatRequest>&& request)> next) {
  api::ResponsesTerms terms{.counting = counting, .can_keep = keeps_responses(context)};
  auto body = api::parse_body(call.request.body);
  if (!body.ok()) return send_error(call, responder, body.error());
  auto previous = api::read_previous_response(*body, terms.can_keep);
  if (!previous.ok()) return send_error(call, responder, previous.error());
  call.request.body = {};
  if (previous->empty()) return next(call, api::read_responses_request(*body, terms));
  const auto held = std::make_shared<Call>(std::move(call));
  const auto parsed = std::make_shared<const json::Value>(std::move(*body));
  const auto refuse = [held, responder](const api::Error& error) {
    send_error(*held, responder, error);
  };
  const auto go_on = [held, parsed, terms, next = std::move(next)](Recalled recalled) {
    held->request.memory = std::make_shared<BothMemories>(
        BothMemories{std::move(held->request.memory), std::move(recalled.memory)});
    api::ResponsesTerms whole = terms;
    whole.before = std::move(recalled).lists();
    next(*held, api::read_responses_request(*parsed, whole));
  };
  // One's own alone, whoever asks: a conversation belongs to one key.
  recall(context, *previous, {held->principal->key_id}, held->principal->key_id, kPreviousResponse,
         [&context, held, refuse, go_on](api::Parsed<Recalled> recalled) {
           if (!recalled.ok()) return refuse(recalled.error());
           const auto shared = std::make_shared<Recalled>(std::move(*recalled));
           const auto drop = [&context, refuse] { refuse(context.no_worker()); };
           const auto run = [go_on, shared] { go_on(std::move(*shared)); };
           if (!context.workers.post(held->priority, run, drop)) drop();
         });
}

void get_response(ServerContext& context, Call& call, const http::Responder& responder) {
  if (call.request.head.query_value("stream").value_or("false") != "false") {
    return send_error(
        call, responder,
        api::invalid_field("stream", "What was kept is not told as a stream: ask without it."));
  }
  context.store.responses().get(call.id, call.principal->scope(),
                                [call, responder](Result<std::string> response) {
                                  if (!response.ok()) {
                                    return send_store_error(call, responder, response.status());
                                  }
                                  send_json(responder, std::move(*response));
                                });
}

void delete_response(ServerContext& context, Call& call, const http::Responder& responder) {
  context.store.responses().remove(
      call.id, call.principal->scope(), [call, responder](const Status& status) {
        if (!status.ok()) return send_store_error(call, responder, status);
        std::string out = "{";
        append_member(out, "id", call.id);
        send_json(responder, out.append(R"(,"object":"response","deleted":true})"));
      });
}

void list_input_items(ServerContext& context, Call& call, const http::Responder& responder) {
  auto options = list_options(call.request.head, kDefaultItems, kMaxItems);
  if (!options.ok()) return send_error(call, responder, options.error());
  const auto answer = [call, responder, options = *options](const Recalled& recalled) {
    auto page = items_page(recalled, options);
    if (!page.ok()) return send_error(call, responder, page.error());
    send_json(responder, std::move(*page));
  };
  recall(context, call.id, call.principal->scope(), call.principal->key_id, "",
         [&context, call, responder, answer](api::Parsed<Recalled> recalled) {
           if (!recalled.ok()) return send_error(call, responder, recalled.error());
           const auto shared = std::make_shared<const Recalled>(std::move(*recalled));
           const auto drop = [&context, call, responder] {
             send_error(call, responder, context.no_worker());
           };
           const auto run = [answer, shared] { answer(*shared); };
           if (!context.workers.post(call.priority, run, drop)) drop();
         });
}

}  // namespace skein::endpoints
