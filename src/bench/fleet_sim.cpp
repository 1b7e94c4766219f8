#include "bench/fleet_sim.h"

#include <algorithm>
#include <deque>
#include <fmt/format.h>
#include <memory>
#include <tuple>
#include <utility>

#include "base/rng.h"

namespace skein::bench {
namespace {

// What HAProxy's configuration gives a node beyond its share, in hundredths.
constexpr uint64_t kBalancePercent = 150;
// The beginning of a prompt that tells conversations apart.
constexpr size_t kHashedTokens = 2 * size_t{kPieceTokens};

struct FleetTimes {
  TimeUs first_token = kNever, ended = kNever;
  bool refused = false;
};

// A request on its way.
struct Sent {
  uint64_t id = 0;
  uint64_t uncached = 0;  // tokens that its router took it to need
  bool waits_for_first = true;
};

struct FleetNode {
  std::unique_ptr<ContinuousBatchingScheduler> scheduler;
  StepPlan plan;
  StepResult result;
  StepEffects effects;
  TimeUs began = 0, ends = kNever;  // of the step; kNever: none runs
  std::vector<RequestSpec> inbox;   // heard of between two steps
  std::vector<Sent> sent;           // not ended, as the router counts them
  uint64_t pending_tokens = 0;      // of these, uncached ones of who waits for a first token
  uint64_t requests = 0;
  bool is_alive = true;
};

class FleetRun {
 public:
  FleetRun(std::span<const WorkItem> items, const FleetLoad& load)
      : items_(items), load_(load), times_(items.size()) {}

  Status make_nodes() {
    nodes_.resize(load_.nodes);
    for (FleetNode& node : nodes_) {
      SKEIN_ASSIGN(node.scheduler, ContinuousBatchingScheduler::create(load_.node.scheduler));
    }
    failures_ = load_.failures;
    std::stable_sort(failures_.begin(), failures_.end(),
                     [](const NodeFailure& a, const NodeFailure& b) { return a.at_us < b.at_us; });
    return {};
  }

  Status run() {
    for (;;) {
      const auto node =
          std::min_element(nodes_.begin(), nodes_.end(),
                           [](const FleetNode& a, const FleetNode& b) { return a.ends < b.ends; });
      const TimeUs looks = look_ < items_.size() ? look_time(look_) : kNever;
      const TimeUs comes = next_ < items_.size() ? items_[next_].arrival_us : kNever;
      const TimeUs fails = failed_ < failures_.size() ? failures_[failed_].at_us : kNever;
      const TimeUs next = std::min({node->ends, looks, comes});
      if (next == kNever) return {};
      now_ = std::min(next, fails);
      if (now_ == fails) {
        SKEIN_TRY(fail(failures_[failed_++].node));
      } else if (now_ == node->ends) {
        finish_step(*node);
        SKEIN_TRY(begin_step(*node));
      } else if (now_ == looks) {
        look();
      } else {
        SKEIN_TRY(route(next_++));
      }
    }
  }

  FleetOutcome outcome() const {
    FleetOutcome out;
    std::vector<double> first_s, latency_ms;
    for (size_t i = 0; i < items_.size(); ++i) {
      if (times_[i].refused) {
        ++out.refused;
        continue;
      }
      const TimeUs came = items_[i].arrival_us;
      first_s.push_back(static_cast<double>(times_[i].first_token - came) / kUsPerSecond);
      latency_ms.push_back(static_cast<double>(times_[i].ended - came) / kUsPerMs);
    }
    uint64_t prompts = 0, hits = 0, most = 0, all = 0;
    for (const FleetNode& node : nodes_) {
      const SchedulerStats stats = node.scheduler->stats();
      prompts += stats.prompt_tokens;
      hits += stats.prefix_hit_tokens;
      out.steps += stats.steps;
      most = std::max(most, node.requests);
      all += node.requests;
    }
    std::sort(first_s.begin(), first_s.end());
    out.p50_s = percentile(first_s, 50);
    out.p90_s = percentile(first_s, 90);
    out.p99_s = percentile(first_s, 99);
    out.requests = first_s.size();
    out.latency_ms = spread_of(std::move(latency_ms));
    out.run_again = run_again_;
    out.hit_rate = share_of(hits, prompts);
    out.busiest = share_of(most * nodes_.size(), all);
    out.seconds = static_cast<double>(now_) / kUsPerSecond;
    return out;
  }

 private:
  static double share_of(uint64_t part, uint64_t whole) {
    return whole == 0 ? 0 : static_cast<double>(part) / static_cast<double>(whole);
  }

  TimeUs look_time(size_t item) const {
    return std::max<TimeUs>(0, items_[item].arrival_us - load_.event_delay_us);
  }

  // What the caches hold of the next item now is what the router knows when it comes.
  void look() {
    std::vector<uint32_t> cached(nodes_.size(), 0);
    if (load_.router == FleetRouter::kPrefix) {
      const std::vector<TokenId> tokens = tokens_of(look_);
      for (size_t i = 0; i < nodes_.size(); ++i) {
        cached[i] = nodes_[i].scheduler->cached_tokens(tokens, {});
      }
    }
    known_.push_back(std::move(cached));
    ++look_;
  }

  std::vector<TokenId> tokens_of(size_t item) const {
    return made_up_tokens(items_[item], load_.node.scheduler.vocab_size);
  }

  Status route(size_t item) {
    const std::vector<uint32_t> cached = std::move(known_.front());
    known_.pop_front();
    return send(item, cached);
  }

  // `cached`: by node.
  Status send(size_t item, std::span<const uint32_t> cached) {
    RequestSpec spec;
    spec.id = RequestId{next_id_++};
    spec.priority = items_[item].priority;
    spec.prompt = tokens_of(item);
    spec.max_new_tokens = items_[item].max_tokens;
    const size_t chosen = choose(item, spec.prompt, cached);
    FleetNode& node = nodes_[chosen];
    const uint64_t uncached =
        spec.prompt.size() - std::min<size_t>(cached[chosen], spec.prompt.size());
    item_of_.push_back(item);
    node.sent.push_back({spec.id.value, uncached});
    node.pending_tokens += uncached;
    ++node.requests;
    node.inbox.push_back(std::move(spec));
    return node.ends == kNever ? begin_step(node) : Status{};
  }

  size_t choose(size_t item, std::span<const TokenId> prompt, std::span<const uint32_t> cached) {
    switch (load_.router) {
      case FleetRouter::kRandom:
        return living(random_at(load_.seed, item, next_id_));
      case FleetRouter::kRoundRobin:
        return living(turn_++);
      case FleetRouter::kLeastLoaded:
        return best([](const FleetNode& node, size_t) { return uint64_t{node.sent.size()}; });
      case FleetRouter::kHash:
        return by_hash(prompt);
      case FleetRouter::kPrefix:
        return best([&](const FleetNode& node, size_t i) {
          return node.pending_tokens + prompt.size() - std::min<size_t>(cached[i], prompt.size());
        });
    }
    return 0;
  }

  size_t living(uint64_t number) const {
    std::vector<size_t> alive;
    for (size_t i = 0; i < nodes_.size(); ++i) {
      if (nodes_[i].is_alive) alive.push_back(i);
    }
    return alive[number % alive.size()];
  }

  // The node that costs least; of equals the one with fewer requests, then the earlier one.
  template <class Cost>
  size_t best(const Cost& cost) const {
    std::tuple<uint64_t, uint64_t, size_t> least{UINT64_MAX, 0, 0};
    for (size_t i = 0; i < nodes_.size(); ++i) {
      if (!nodes_[i].is_alive) continue;
      least = std::min(least, {cost(nodes_[i], i), nodes_[i].sent.size(), i});
    }
    return std::get<2>(least);
  }

  // Every prompt has an order of the nodes of its own, and goes to the first that has room.
  size_t by_hash(std::span<const TokenId> prompt) const {
    uint64_t key = 0;
    for (const TokenId token : prompt.first(std::min(prompt.size(), kHashedTokens))) {
      key = random_at(key, static_cast<uint64_t>(token));
    }
    uint64_t all = 1, alive = 0;
    for (const FleetNode& node : nodes_) {
      all += node.is_alive ? node.sent.size() : 0;
      alive += node.is_alive ? 1 : 0;
    }
    const uint64_t most = (all * kBalancePercent + 100 * alive - 1) / (100 * alive);
    return best([&](const FleetNode& node, size_t i) {
      return (random_at(key, i) >> 1) + (node.sent.size() < most ? 0 : uint64_t{1} << 63);
    });
  }

  Status begin_step(FleetNode& node) {
    for (RequestSpec& spec : node.inbox) {
      const uint64_t id = spec.id.value;
      const Status status = node.scheduler->submit(std::move(spec), now_);
      if (status.ok()) continue;
      if (status.code() != Code::kResourceExhausted) {
        return {status.code(), fmt::format("request {}: {}", item_of_[id] + 1, status.message())};
      }
      times_[item_of_[id]].refused = true;
      forget(node, id);
    }
    node.inbox.clear();
    node.scheduler->plan(now_, node.plan);
    node.ends = kNever;
    if (node.plan.empty()) {
      return node.scheduler->idle() ? Status{} : internal_error("requests wait and none can run");
    }
    node.began = now_;
    node.ends =
        now_ + load_.node.step_us + load_.node.token_us * static_cast<TimeUs>(node.plan.tokens);
    return {};
  }

  void finish_step(FleetNode& node) {
    node.result.reset(node.plan.step);
    node.result.elapsed_us = now_ - node.began;
    for (const Segment& segment : node.plan.segments) {
      // A function of the item, so that an answer is the same on every node.
      const auto token = static_cast<TokenId>(
          random_at(item_of_[segment.request.value], segment.start + segment.count) %
          load_.node.scheduler.vocab_size);
      node.result.add(SegmentOutcome::kOk, std::span(&token, segment.samples));
    }
    node.scheduler->commit(node.result, now_, node.effects);
    for (const TokenEvent& token : node.effects.tokens) {
      if (token.index == 0) see_first(node, token.request.value);
    }
    for (const EndEvent& end : node.effects.ended) {
      times_[item_of_[end.request.value]].ended = now_;
      forget(node, end.request.value);
    }
  }

  static auto find_sent(FleetNode& node, uint64_t id) {
    return std::find_if(node.sent.begin(), node.sent.end(),
                        [id](const Sent& sent) { return sent.id == id; });
  }

  void see_first(FleetNode& node, uint64_t id) {
    const auto sent = find_sent(node, id);
    if (std::exchange(sent->waits_for_first, false)) node.pending_tokens -= sent->uncached;
    FleetTimes& times = times_[item_of_[id]];
    times.first_token = std::min(times.first_token, now_);
  }

  void forget(FleetNode& node, uint64_t id) {
    const auto sent = find_sent(node, id);
    if (sent->waits_for_first) node.pending_tokens -= sent->uncached;
    node.sent.erase(sent);
  }

  // Whoever had seen a token sees them again: its stream was cut, and it asked anew.
  Status fail(uint32_t number) {
    FleetNode& node = nodes_[number];
    if (!node.is_alive) return {};
    node.is_alive = false;
    node.ends = kNever;
    node.inbox.clear();
    node.pending_tokens = 0;
    const std::vector<uint32_t> nothing(nodes_.size(), 0);
    for (const Sent& sent : std::exchange(node.sent, {})) {
      ++run_again_;
      SKEIN_TRY(send(item_of_[sent.id], nothing));
    }
    return {};
  }

  const std::span<const WorkItem> items_;
  const FleetLoad& load_;
  std::vector<FleetTimes> times_;
  std::vector<FleetNode> nodes_;
  std::vector<NodeFailure> failures_;  // by time
  std::deque<std::vector<uint32_t>>
      known_;                    // of the items from next_ to look_: cached tokens by node
  std::vector<size_t> item_of_;  // by request id
  TimeUs now_ = 0;
  size_t next_ = 0, look_ = 0, failed_ = 0;
  uint64_t next_id_ = 0, turn_ = 0, run_again_ = 0;
};

}  // namespace

std::string_view name_of(FleetRouter router) {
  constexpr std::string_view kNames[] = {"random", "round-robin", "least-loaded", "hash", "prefix"};
  return kNames[static_cast<size_t>(router)];
}

Result<FleetRouter> router_of_name(std::string_view name) {
  for (const FleetRouter router : kFleetRouters) {
    if (name == name_of(router)) return router;
  }
  return invalid_argument(
      "router '{}' is none of random, round-robin, least-loaded, hash and prefix", name);
}

Result<FleetOutcome> simulate_fleet(std::span<const WorkItem> items, const FleetLoad& load) {
  std::vector<bool> dies(load.nodes, false);
  for (const NodeFailure& failure : load.failures) {
    if (failure.node >= load.nodes) {
      return invalid_argument("node {} fails, and there are {}", failure.node + 1, load.nodes);
    }
    dies[failure.node] = true;
  }
  if (std::find(dies.begin(), dies.end(), false) == dies.end()) {
    return invalid_argument("all of the {} nodes fail, and none is left to go on", load.nodes);
  }
  FleetRun run(items, load);
  SKEIN_TRY(run.make_nodes());
  SKEIN_TRY(run.run());
  return run.outcome();
}

std::vector<WorkItem> synthetic_chats(const ChatLoad& load) {
  constexpr TimeUs kPauseUs = 30 * kUsPerSecond;
  Rng rng(load.seed);
  std::vector<WorkItem> begins(load.requests);  // more chats than are needed
  set_poisson_arrivals(begins, 2 * load.rate / (load.turns + 1), load.seed);
  std::vector<WorkItem> items;
  uint64_t next_piece = load.applications;
  for (const WorkItem& begin : begins) {
    WorkItem item;
    item.arrival_us = begin.arrival_us;
    item.pieces.push_back(rng.below(load.applications));
    const uint64_t turns = rng.between(1, load.turns);
    for (uint64_t turn = 0; turn < turns; ++turn) {
      for (uint64_t i = rng.between(1, 3); i > 0; --i) item.pieces.push_back(next_piece++);
      item.prompt_tokens =
          static_cast<uint32_t>(item.pieces.size() * kPieceTokens - rng.below(kPieceTokens));
      item.max_tokens = static_cast<uint32_t>(rng.between(16, 256));
      items.push_back(item);
      item.arrival_us += static_cast<TimeUs>(rng.between(kPauseUs / 2, kPauseUs * 3 / 2));
    }
  }
  std::stable_sort(items.begin(), items.end(), [](const WorkItem& a, const WorkItem& b) {
    return a.arrival_us < b.arrival_us;
  });
  items.resize(std::min<size_t>(items.size(), load.requests));
  return items;
}

}  // namespace skein::bench
