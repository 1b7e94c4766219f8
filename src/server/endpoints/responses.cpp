// Responses that /v1/responses has kept are continued, looked up, listed and deleted here.
#include <algorithm>
#include <optional>
#include <utility>
#include <vector>

#include "server/answer/recall.h"
#include "server/api/item_references.h"
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

// A page of the items, which are read list by list until it is full.
class ItemsPage {
 public:
  explicit ItemsPage(const ListOptions& options)
      : options_(options), begun_(options.after.empty()) {}

  // False: nothing more is needed.
  bool add(json::Value item, const std::string& response_id, size_t place) {
    const json::Value shown = api::shown_item(std::move(item), response_id, place);
    const std::string id = shown.is_object() ? std::string(shown["id"]) : std::string();
    if (!begun_) {
      begun_ = id == options_.after;
      return true;
    }
    if (count_ == options_.limit) {
      has_more_ = true;
      return false;
    }
    if (count_++ == 0) first_id_ = id;
    last_id_ = id;
    if (count_ > 1) data_.push_back(',');
    data_.append(shown.dump());
    return true;
  }
  api::Parsed<std::string> take() && {
    if (!begun_) return api::invalid_field("after", "It is not the id of an item.");
    std::string out = R"({"object":"list","data":[)" + data_ + "]";
    json::append_member_or_null(out, "first_id", first_id_);
    json::append_member_or_null(out, "last_id", last_id_);
    append_member(out, "has_more", has_more_);
    return out.append("}");
  }

 private:
  const ListOptions& options_;
  bool begun_, has_more_ = false;
  uint32_t count_ = 0;
  std::string data_, first_id_, last_id_;
};

// The items before the answer: the earlier turns, and the response's own input.
api::Parsed<std::string> items_page(const Recalled& recalled, const ListOptions& options) {
  std::vector<std::pair<const ConversationTurn*, const std::string*>> lists;
  for (const ConversationTurn& turn : recalled.turns) {
    lists.emplace_back(&turn, &turn.input);
    lists.emplace_back(&turn, &turn.output);
  }
  if (!lists.empty()) lists.pop_back();
  if (!options.oldest_first) std::reverse(lists.begin(), lists.end());
  ItemsPage page(options);
  for (const auto& [turn, text] : lists) {
    auto list = api::read_kept_items(*text);
    if (!list.ok()) return list.error();
    const size_t count = list->size();
    for (size_t i = 0; i < count; ++i) {
      const size_t place = options.oldest_first ? i : count - 1 - i;
      if (!page.add(std::move((*list)[place]), turn->id, place)) return std::move(page).take();
    }
  }
  return std::move(page).take();
}

// A request that names what the store has: items of its input first, then the response that it
// continues. Each step is on a worker; the store answers on its own thread.
struct Continued : std::enable_shared_from_this<Continued> {
  Continued(ServerContext& its_context, Call its_call, http::Responder its_responder)
      : context(its_context), call(std::move(its_call)), responder(std::move(its_responder)) {}

  ServerContext& context;
  Call call;
  http::Responder responder;
  api::ResponsesTerms terms;
  json::Value body;
  std::string previous;
  std::vector<api::ItemReference> references;
  std::function<void(Call& call, api::Parsed<api::ChatRequest>&& request)> next;

  void find_items() {
    if (references.empty()) return find_previous();
    auto ids = api::referred_responses(references);
    if (!ids.ok()) return send_error(call, responder, ids.error());
    recall_each(context, std::move(*ids), {call.principal->key_id}, call.principal->key_id,
                then([](Continued& self, Recalled recalled) {
                  if (const auto error = self.put_items(recalled)) {
                    return send_error(self.call, self.responder, *error);
                  }
                  self.hold(std::move(recalled.memory));
                  self.find_previous();
                }));
  }
  void find_previous() {
    if (previous.empty()) return next(call, api::read_responses_request(body, terms));
    // One's own alone, whoever asks: a conversation belongs to one key.
    recall(context, previous, {call.principal->key_id}, call.principal->key_id, kPreviousResponse,
           then([](Continued& self, Recalled recalled) {
             self.hold(std::move(recalled.memory));
             self.terms.before = std::move(recalled).lists();
             self.next(self.call, api::read_responses_request(self.body, self.terms));
           }));
  }

  // What the store says goes to a worker.
  std::function<void(api::Parsed<Recalled>)> then(void (*go_on)(Continued&, Recalled)) {
    return [self = shared_from_this(), go_on](api::Parsed<Recalled> recalled) {
      if (!recalled.ok()) return send_error(self->call, self->responder, recalled.error());
      const auto shared = std::make_shared<Recalled>(std::move(*recalled));
      on_worker(self->context, self->call, self->responder,
                [self, go_on, shared] { go_on(*self, std::move(*shared)); });
    };
  }
  void hold(std::shared_ptr<void> memory) {
    call.request.memory = std::make_shared<BothMemories>(
        BothMemories{std::move(call.request.memory), std::move(memory)});
  }

  // Puts the items in the places of their names; list by list, so that one is parsed at a time.
  std::optional<api::Error> put_items(const Recalled& recalled) {
    for (const ConversationTurn& turn : recalled.turns) {
      for (const std::string* text : {&turn.input, &turn.output}) {
        auto list = api::read_kept_items(*text);
        if (!list.ok()) return list.error();
        for (const api::ItemReference& reference : references) {
          const bool is_here = reference.of_input == (text == &turn.input);
          if (reference.response_id != turn.id || !is_here) continue;
          auto item = api::find_kept_item(*list, reference);
          if (item) body["input"][reference.place] = std::move(*item);
        }
      }
    }
    const std::vector<api::ItemReference> missing = api::item_references(body);
    if (!missing.empty()) return api::item_not_found(missing.front());
    return std::nullopt;
  }
};

}  // namespace

void with_conversation(
    ServerContext& context, Call& call, const http::Responder& responder, bool counting,
    std::function<void(Call& call, api::Parsed<api::ChatRequest>&& request)> next) {
  api::ResponsesTerms terms{.counting = counting, .can_keep = keeps_responses(context)};
  auto body = api::parse_body(call.request.body);
  if (!body.ok()) return send_error(call, responder, body.error());
  auto previous = api::read_previous_response(*body, terms.can_keep);
  if (!previous.ok()) return send_error(call, responder, previous.error());
  auto references =
      terms.can_keep ? api::item_references(*body) : std::vector<api::ItemReference>{};
  call.request.body = {};
  if (previous->empty() && references.empty()) {
    return next(call, api::read_responses_request(*body, terms));
  }
  const auto continued = std::make_shared<Continued>(context, std::move(call), responder);
  continued->terms = terms;
  continued->body = std::move(*body);
  continued->previous = std::move(*previous);
  continued->references = std::move(references);
  continued->next = std::move(next);
  continued->find_items();
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
           on_worker(context, call, responder, [answer, shared] { answer(*shared); });
         });
}

}  // namespace skein::endpoints
