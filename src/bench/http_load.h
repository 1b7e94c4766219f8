// Load on any server that speaks OpenAI's completions over HTTP, from one thread.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <string_view>

#include "base/clock.h"
#include "base/status.h"
#include "bench/result.h"
#include "bench/workload.h"

namespace skein::bench {

// http://host[:port][/path]; the path may end in /v1 or leave that out.
struct ServerUrl {
  std::string host;
  uint16_t port = 80;
  std::string path;  // "/v1" and what stands before it

  std::string authority() const;  // host and port as the Host header has them
};
Result<ServerUrl> parse_url(std::string_view url);

struct HttpTarget {
  ServerUrl url;
  std::string model;                        // empty: the server's own choice
  std::string keys[kPriorities];            // by class; empty: none is sent
  bool chat = false;                        // chat completions instead of plain ones
  TimeUs patience_us = 300 * kUsPerSecond;  // without a byte from the server
};

// The id of the server's first model.
Result<std::string> first_model(const HttpTarget& target);

// Reads the events of a GET below the target's path until the server ends it, `on_event` says false
// or `cancel` became true.
Status watch_events(const HttpTarget& target, std::string_view path,
                    const std::function<bool(std::string_view)>& on_event,
                    const std::atomic<bool>& cancel);

// Sends every item once, streamed, greedy, past stop tokens: `concurrency` of them at any moment,
// or, with 0, each at its own time of arrival. A request that fails is counted as such; nothing is
// sent twice. `on_tokens` gets the events with text so far. Stops soon after `cancel` became true.
LoadRun run_http_load(const HttpTarget& target, std::span<const WorkItem> items,
                      uint32_t concurrency, const Clock& clock,
                      const std::function<void(uint64_t)>& on_tokens,
                      const std::atomic<bool>& cancel);

}  // namespace skein::bench
