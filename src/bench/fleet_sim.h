// Several nodes behind a router, each the real scheduler, on one virtual clock: what a way of
// routing does to the prefix caches and to the waits, without a model and without a network.
//
// A router is a pure function of what it may know: its own counts of what it has sent and what has
// ended, and, for kPrefix, what each cache held `event_delay_us` ago. The same items and options
// give the same answer, to the microsecond.
#pragma once

#include <cstdint>
#include <span>
#include <string_view>
#include <vector>

#include "base/status.h"
#include "bench/result.h"
#include "bench/schedule_sim.h"
#include "bench/workload.h"

namespace skein::bench {

enum class FleetRouter : uint8_t {
  kRandom,
  kRoundRobin,
  kLeastLoaded,  // fewest requests that have not ended
  kHash,         // of a prompt's first tokens, with half again its share at most (as HAProxy)
  kPrefix,       // fewest tokens to compute before the first one of the answer (as Dynamo, llm-d)
};
inline constexpr FleetRouter kFleetRouters[] = {FleetRouter::kRandom, FleetRouter::kRoundRobin,
                                                FleetRouter::kLeastLoaded, FleetRouter::kHash,
                                                FleetRouter::kPrefix};
std::string_view name_of(FleetRouter router);
// kInvalidArgument lists the names.
Result<FleetRouter> router_of_name(std::string_view name);

// A node dies for good, with its cache; what it had begun is run again elsewhere.
struct NodeFailure {
  TimeUs at_us = 0;
  uint32_t node = 0;
};

struct FleetLoad {
  SimLoad node;
  uint32_t nodes = 1;
  FleetRouter router = FleetRouter::kHash;
  TimeUs event_delay_us = 0;
  std::vector<NodeFailure> failures;
  uint64_t seed = 1;  // of kRandom
};

struct FleetOutcome {
  uint64_t requests = 0;   // that ran to their end
  uint64_t refused = 0;    // the queue of their node was full
  uint64_t run_again = 0;  // their node died
  double hit_rate = 0;     // prompt tokens that a prefix cache had, of all that were admitted
  double p50_s = 0, p90_s = 0, p99_s = 0;  // until the first token, since it first came
  Spread latency_ms;
  double busiest = 0;  // requests of the node that got most, over the mean of all nodes
  double seconds = 0;  // on the virtual clock
  uint64_t steps = 0;
};

// kInvalidArgument: a failure names no node, or leaves none. kOutOfRange as simulate_schedule().
Result<FleetOutcome> simulate_fleet(std::span<const WorkItem> items, const FleetLoad& load);

// Conversations where there is no trace: each begins with one of `applications` instructions, which
// it shares with others, and comes back with more and more behind it, 30 seconds after each other.
struct ChatLoad {
  uint32_t requests = 1000;
  double rate = 2;
  uint32_t applications = 20;
  uint32_t turns = 8;  // at most
  uint64_t seed = 1;
};
std::vector<WorkItem> synthetic_chats(const ChatLoad& load);

}  // namespace skein::bench
