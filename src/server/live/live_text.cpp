#include "server/live/live_text.h"

#include <cmath>
#include <map>
#include <unordered_map>
#include <utility>

#include "server/context.h"
#include "server/json.h"

namespace skein {
namespace {

using json::append_member;

constexpr size_t kMaxShown = SchedulerView::kMaxRequests;

double in_ms(TimeUs us) {
  return static_cast<double>(us) / kUsPerMs;
}

// On a server that strangers reach without keys, everybody is the same owner and nobody is shown.
bool sees_requests(const ServerContext& context, const Principal& who) {
  return !who.is_anonymous() || !context.settings.insecure_open;
}

std::vector<RequestBrief> visible(const ServerContext& context, const Principal& who) {
  if (!sees_requests(context, who)) return {};
  return context.live.briefs(who.key_id, who.admin, kMaxShown);
}

// Where the requests of a frame stand in it, by their model and the engine's ids.
using Places = std::map<std::string, std::unordered_map<uint64_t, size_t>, std::less<>>;

Places places_of(const std::vector<RequestBrief>& requests) {
  Places places;
  for (size_t i = 0; i < requests.size(); ++i) {
    auto& of_model = places[requests[i].model];
    for (const RequestBrief::Choice& choice : requests[i].choices) of_model[choice.id.value] = i;
  }
  return places;
}

// What the engines said of requests, by their model and the engine's ids.
using Explained = std::map<std::string, std::unordered_map<uint64_t, const Explanation*>>;

Explained explained_in(const LivePicture& picture, const Places& shown) {
  Explained found;
  for (const LiveModel& model : picture.models) {
    if (model.view == nullptr || !shown.contains(model.status.config.id)) continue;
    auto& of_model = found[model.status.config.id];
    for (const Explanation& e : model.view->requests) of_model[e.id.value] = &e;
  }
  return found;
}

const Explanation* find_in(const Explained& explained, const std::string& model, RequestId id) {
  const auto of_model = explained.find(model);
  if (of_model == explained.end()) return nullptr;
  const auto found = of_model->second.find(id.value);
  return found == of_model->second.end() ? nullptr : found->second;
}

void append_request(std::string& out, const RequestBrief& request, const Explained& explained,
                    TimeUs now, bool names_keys) {
  out.push_back('{');
  append_member(out, "id", request.id);
  append_member(out, "model", request.model);
  append_member(out, "route", request.route);
  append_member(out, "class", name_of(request.priority));
  append_member(out, "background", request.is_background);
  if (names_keys) append_member(out, "key", request.key_name);
  append_member(out, "age_ms", in_ms(now - request.arrived));
  json::append_name(out, "choices");
  out.push_back('[');
  for (const RequestBrief::Choice& choice : request.choices) {
    const Explanation* e = find_in(explained, request.model, choice.id);
    if (e == nullptr) continue;  // it came after the engine was asked, or has just ended
    if (out.back() != '[') out.push_back(',');
    out.push_back('{');
    append_member(out, "index", choice.index);
    append_explanation(out, *e);
    out.push_back('}');
  }
  out.append("]}");
}

void append_requests(std::string& out, const std::vector<RequestBrief>& requests,
                     const LivePicture& picture, const Places& places, bool names_keys) {
  const Explained explained = explained_in(picture, places);
  json::append_list(out, requests, [&](const RequestBrief& request) {
    append_request(out, request, explained, picture.now, names_keys);
  });
}

void append_counts(std::string& out, const EngineSnapshot& snapshot, TimeUs now) {
  const SchedulerStats& stats = snapshot.scheduler;
  out.push_back('{');
  append_member(out, "state", name_of(snapshot.state));
  append_member(out, "live", snapshot.live);
  for (uint32_t p = 0; p < kPriorities; ++p) {
    const std::string of_class(name_of(static_cast<Priority>(p)));
    append_member(out, "waiting_" + of_class, stats.waiting[p]);
    const TimeUs oldest = stats.oldest_arrival[p];
    append_member(out, "oldest_" + of_class + "_ms", oldest == kNever ? 0.0 : in_ms(now - oldest));
  }
  append_member(out, "prefilling", stats.prefilling);
  append_member(out, "running", stats.running);
  append_member(out, "steps", stats.steps);
  append_member(out, "completed", stats.completed);
  append_member(out, "cancelled", stats.cancelled);
  append_member(out, "refused", stats.refused);
  append_member(out, "prompt_tokens", stats.prompt_tokens);
  append_member(out, "generated_tokens", stats.generated_tokens);
  append_member(out, "computed_tokens", stats.computed_tokens);
  append_member(out, "prefix_query_tokens", stats.prefix_query_tokens);
  append_member(out, "prefix_hit_tokens", stats.prefix_hit_tokens);
  append_member(out, "preemptions", stats.preemptions);
  append_member(out, "evictions", stats.evictions);
  append_member(out, "last_step_ms", in_ms(snapshot.last_step_us));
  append_member(out, "step_us_first_bucket", 1U << snapshot.step_us.first);
  append_member(out, "step_us_sum", snapshot.step_us.sum);
  json::append_name(out, "step_us");
  json::append_list(out, snapshot.step_us.counts,
                    [&](uint64_t count) { json::append_int(out, static_cast<int64_t>(count)); });
  out.push_back('}');
}

// A letter a cell, and beside them who holds those that are held: the place of a request in the
// frame, or -1 for one that the reader may not see.
void append_blocks(std::string& out, const SchedulerStats& stats, const SchedulerView* view,
                   const std::unordered_map<uint64_t, size_t>* places) {
  out.push_back('{');
  append_member(out, "pool", stats.pool_blocks);
  append_member(out, "held", stats.held_blocks);
  append_member(out, "cached", stats.cached_blocks);
  if (view != nullptr) {
    constexpr char kLetters[kBlockUses] = {'.', 'c', 'h', 's'};
    std::string cells;
    for (const auto& cell : view->cells) cells.push_back(kLetters[static_cast<size_t>(cell.use)]);
    append_member(out, "cell_blocks", view->cell_blocks);
    append_member(out, "cells", cells);
    json::append_name(out, "holders");
    json::append_list(out, view->cells, [&](const SchedulerView::Cell& cell) {
      int64_t place = -1;
      if (places != nullptr && cell.holder < view->requests.size()) {
        const auto found = places->find(view->requests[cell.holder].id.value);
        if (found != places->end()) place = static_cast<int64_t>(found->second);
      }
      json::append_int(out, place);
    });
  }
  out.push_back('}');
}

void append_model(std::string& out, const LiveModel& model, const Places& places, TimeUs now) {
  const ModelStatus& status = model.status;
  out.push_back('{');
  append_member(out, "id", status.config.id);
  append_member(out, "state", name_of(status.state));
  append_member(out, "pinned", status.config.pinned);
  append_member(out, "leases", status.leases);
  append_member(out, "failed", !status.failure.ok());
  if (status.loaded_share) {
    append_member(out, "loaded_share", std::round(1000.0 * *status.loaded_share) / 1000);
  }
  if (status.served) {
    const ServedModel& served = *status.served;
    append_member(out, "weight_bytes", served.weight_bytes());
    append_member(out, "kv_bytes", served.kv_bytes());
    append_member(out, "memory_bytes", served.memory_bytes());
    append_member(out, "max_request_tokens", served.max_request_tokens());
    append_member(out, "max_batch", served.max_batch());
    append_member(out, "rebuilds", served.rebuilds());
    EngineSnapshot snapshot = served.snapshot();
    add_counts(snapshot, status.past);
    append_counts((json::append_name(out, "engine"), out), snapshot, now);
    const auto found = places.find(status.config.id);
    append_blocks((json::append_name(out, "kv"), out), snapshot.scheduler, model.view.get(),
                  found == places.end() ? nullptr : &found->second);
  }
  out.push_back('}');
}

void append_budget(std::string& out, const char* name, uint64_t used, uint64_t limit) {
  json::append_name(out, name);
  out.push_back('{');
  append_member(out, "used_bytes", used);
  append_member(out, "limit_bytes", limit);
  out.push_back('}');
}

void append_limits(std::string& out, const ServerContext& context) {
  const ManagerStats models = context.models.stats();
  json::append_name(out, "limits");
  out.push_back('{');
  append_budget(out, "models", models.used_bytes, models.limit_bytes);
  append_budget(out, "requests", context.memory.used_bytes(), context.memory.limit_bytes());
  out.push_back('}');
}

const char* scope_of(const ServerContext& context, const Principal& who) {
  if (!sees_requests(context, who)) return "totals";
  return who.admin || who.is_anonymous() ? "all" : "own";
}

void append_ended(std::string& out, const RecentRequests::Entry& entry, bool names_keys) {
  const FinishedRequest& r = entry.request;
  out.push_back('{');
  append_member(out, "id", r.id);
  append_member(out, "model", r.model);
  append_member(out, "route", r.route);
  append_member(out, "class", name_of(r.priority));
  if (names_keys) append_member(out, "key", r.key_name);
  append_member(out, "ended_at_ms", entry.ended_at_ms);
  append_outcome(out, r);
  out.push_back('}');
}

}  // namespace

std::string_view name_of(ModelState state) {
  constexpr std::string_view kNames[] = {"unloaded", "loading", "ready", "unloading"};
  return kNames[static_cast<size_t>(state)];
}

void append_explanation(std::string& out, const Explanation& e) {
  append_member(out, "state", name_of(e.status));
  append_member(out, "effective_priority", static_cast<double>(e.effective_priority_milli) / 1000);
  append_member(out, "queue_position", e.queue_position);
  append_member(out, "prompt_tokens", e.prompt_tokens);
  append_member(out, "generated_tokens", e.generated_tokens);
  append_member(out, "computed_tokens", e.computed_tokens);
  append_member(out, "cached_tokens", e.cached_tokens);
  append_member(out, "drafted_tokens", e.drafted_tokens);
  append_member(out, "accepted_tokens", e.accepted_tokens);
  append_member(out, "blocks", e.blocks);
  append_member(out, "preemptions", e.preemptions);
  append_member(out, "wait_reason", name_of(e.wait));
  append_member(out, "explanation", e.describe());
  if (!e.form) return;
  json::append_name(out, "form_use");
  out.push_back('{');
  append_member(out, "zone", e.form->zone);
  append_member(out, "masks", e.form->masks);
  append_member(out, "slowest_mask_ms", static_cast<double>(e.form->slowest_mask_us) / kUsPerMs);
  out.push_back('}');
}

std::string live_text(const ServerContext& context, const LivePicture& picture,
                      const Principal& who) {
  const std::vector<RequestBrief> requests = visible(context, who);
  const Places places = places_of(requests);
  std::string out = R"({"object":"live")";
  append_member(out, "at_ms", in_ms(picture.now));
  append_member(out, "scope", scope_of(context, who));
  append_member(out, "admin", who.admin);
  append_member(out, "version", context.settings.version);
  append_member(out, "ready", context.ready.load());
  append_member(out, "draining", context.draining.load());
  append_member(out, "watchers", context.feed.watchers());
  append_member(out, "live_requests", context.live.size());
  append_limits(out, context);
  std::vector<const LiveModel*> models;
  for (const LiveModel& model : picture.models) {
    if (who.may_use(model.status.config.id)) models.push_back(&model);
  }
  json::append_name(out, "models");
  json::append_list(
      out, models, [&](const LiveModel* model) { append_model(out, *model, places, picture.now); });
  json::append_name(out, "requests");
  append_requests(out, requests, picture, places, who.admin);
  return out.append("}");
}

std::string requests_text(const ServerContext& context, const LivePicture& picture,
                          const Principal& who, size_t recent) {
  const std::vector<RequestBrief> requests = visible(context, who);
  std::string out = R"({"object":"list")";
  append_member(out, "scope", scope_of(context, who));
  append_member(out, "live_requests", context.live.size());
  json::append_name(out, "data");
  append_requests(out, requests, picture, places_of(requests), who.admin);
  std::vector<RecentRequests::Entry> ended;
  if (sees_requests(context, who)) ended = context.recent.list(who.key_id, who.admin, recent);
  json::append_name(out, "recent");
  json::append_list(
      out, ended, [&](const RecentRequests::Entry& entry) { append_ended(out, entry, who.admin); });
  return out.append("}");
}

}  // namespace skein
