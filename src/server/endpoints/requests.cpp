// /v1/requests and /v1/requests/{id}: what requests are doing, what took their time, and their end.
// /v1/live: the same for whoever watches.
#include <memory>
#include <mutex>
#include <utility>

#include "server/endpoints/reply.h"
#include "server/json.h"
#include "server/live/live_text.h"

namespace skein::endpoints {
namespace {

using json::append_member;

constexpr uint32_t kDefaultRecent = 50;
constexpr uint64_t kRetryAfterS = 2;

api::Error too_many(const Status& status) {
  return {.status = 503,
          .message = status.message(),
          .code = "overloaded",
          .retry_after_s = kRetryAfterS};
}

// Asks the engines of all models at once; `done` is called when the last of them has answered, by
// whichever thread that is.
class Gathering : public std::enable_shared_from_this<Gathering> {
 public:
  using Done = std::function<void(const LivePicture&)>;
  Gathering(LivePicture picture, Done done)
      : picture_(std::move(picture)), done_(std::move(done)), left_(picture_.models.size() + 1) {}

  void ask() {
    for (LiveModel& model : picture_.models) {
      if (model.status.served == nullptr) {
        arrive();
        continue;
      }
      const auto served = model.status.served;
      served->view(
          [self = shared_from_this(), &model](Result<std::shared_ptr<const SchedulerView>> view) {
            if (view.ok()) model.view = std::move(*view);
            self->arrive();
          });
    }
    arrive();
  }

 private:
  void arrive() {
    {
      const std::lock_guard lock(mutex_);
      if (--left_ > 0) return;
    }
    done_(picture_);
  }

  LivePicture picture_;  // every answer has a model of its own in it
  const Done done_;
  std::mutex mutex_;
  size_t left_;
};

// The members, each with a comma before it.
void append_timed(std::string& out, const Explanation& explanation) {
  append_member(out, "class", name_of(explanation.priority));
  append_explanation(out, explanation);
  json::append_name(out, "timings");
  out.push_back('{');
  append_member(out, "since_arrival_ms", static_cast<double>(explanation.waited_us) / kUsPerMs);
  out.push_back('}');
}

// The first choice's facts stand at the top, where a client with one choice looks for them.
std::string request_answer(const RequestExplanation& request) {
  std::string out = "{";
  append_member(out, "id", request.id);
  append_member(out, "object", "request");
  append_member(out, "model", request.model);
  append_member(out, "seed", request.seed);  // as the request's field is read
  if (request.sampling) {
    json::append_name(out, "sampling");
    out.append(sampling_json(*request.sampling, ""));
  }
  if (request.has_form) {
    json::append_name(out, "form");
    json::append_name(out.append("{"), "relaxed");
    json::append_list(out, request.relaxed,
                      [&](const std::string& pointer) { json::append_string(out, pointer); });
    out.push_back('}');
  }
  if (!request.call_format.empty()) append_member(out, "tool_format", request.call_format);
  if (request.choices.empty()) {
    append_member(out, "state", request.state);
  } else {
    append_timed(out, request.choices.front().explanation);
  }
  json::append_name(out, "choices");
  json::append_list(out, request.choices, [&](const ChoiceExplanation& choice) {
    out.push_back('{');
    append_member(out, "index", choice.index);
    append_timed(out, choice.explanation);
    out.push_back('}');
  });
  return out.append("}");
}

// Null after the client was told that there is none.
std::shared_ptr<LiveRequest> find(const ServerContext& context, const Call& call,
                                  const http::Responder& responder) {
  auto request = context.live.find(call.id, call.principal->key_id, call.principal->admin);
  if (request == nullptr) send_error(call, responder, api::not_found());
  return request;
}

}  // namespace

void list_requests(ServerContext& context, Call& call, const http::Responder& responder) {
  auto options = list_options(call.request.head, kDefaultRecent, RecentRequests::kKept);
  if (!options.ok()) return send_error(call, responder, options.error());
  LivePicture picture{.now = context.clock.now(), .models = {}};
  for (ModelStatus& status : context.models.models()) {
    picture.models.push_back({std::move(status), nullptr});
  }
  // The last answer may come by an engine's thread, which must not be kept.
  const auto write = [&context, call, responder, recent = options->limit](const LivePicture& all) {
    on_worker(context, call, responder, [&context, call, responder, recent, all] {
      send_json(responder, requests_text(context, all, *call.principal, recent));
    });
  };
  std::make_shared<Gathering>(std::move(picture), write)->ask();
}

void watch_live(ServerContext& context, Call& call, const http::Responder& responder) {
  if (call.request.head.method == "HEAD") {
    responder.start({});
    return responder.finish();
  }
  const Status watching = context.feed.watch(context, std::string(credential_of(call.request.head)),
                                             call.principal->key_id, responder);
  if (!watching.ok()) send_error(call, responder, too_many(watching));
}

void explain_request(ServerContext& context, Call& call, const http::Responder& responder) {
  const auto request = find(context, call, responder);
  if (request == nullptr) return;
  request->explain([call, responder](const RequestExplanation& explanation) {
    if (explanation.error) return send_error(call, responder, *explanation.error);
    send_json(responder, request_answer(explanation));
  });
}

void cancel_request(ServerContext& context, Call& call, const http::Responder& responder) {
  const auto request = find(context, call, responder);
  if (request == nullptr) return;
  request->cancel();
  std::string out = "{";
  append_member(out, "id", call.id);
  send_json(responder, out.append(R"(,"object":"request","cancelled":true})"));
}

}  // namespace skein::endpoints
