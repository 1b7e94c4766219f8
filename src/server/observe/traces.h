// Traces: what took a request's time, as spans for a collector of OpenTelemetry (OTLP over HTTP, in
// JSON). Never its text.
//
// A request is one span with its stretches below it: prepare (text work, the load of a model),
// queue, prefill, decode. It belongs to the trace that the client's `traceparent` names, below the
// client's span; without one it begins a trace. A client that says its trace is not sampled has no
// spans.
//
// add() never waits: a thread of its own sends what has come, once a second at most. What does not
// fit, or what the collector does not take, is dropped and counted. Any thread may call any member.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <thread>
#include <vector>

#include "base/status.h"
#include "server/observe/finished_request.h"

namespace skein {

// Where spans go: http://host:port/v1/traces.
struct TraceEndpoint {
  std::string host;
  uint16_t port = 4318;
  std::string path = "/v1/traces";
};
// kInvalidArgument: `url` is no such URL. https is none: a collector stands beside its server.
Result<TraceEndpoint> parse_trace_endpoint(std::string_view url);

// The client's trace and span, in hex, of a `traceparent`; nullopt: it has none, or says nonsense.
struct TraceParent {
  std::string trace;
  std::string span;
  bool is_sampled = true;
};
std::optional<TraceParent> parse_trace_parent(std::string_view header);

// A request that has ended and when, in nanoseconds of the calendar.
struct TracedRequest {
  FinishedRequest request;
  uint64_t ended_ns = 0;
};
// Who sends spans.
struct TraceSource {
  std::string node;
  std::string version;
};
// The body of a POST to a collector.
std::string spans_json(const std::vector<TracedRequest>& requests, const TraceSource& source);

class TraceSender;

class Traces {
 public:
  static constexpr size_t kMaxWaiting = 4096;  // requests

  Traces(TraceEndpoint endpoint, TraceSource source);
  // Sends what is left, and waits a second and a half for that at most.
  ~Traces();
  Traces(const Traces&) = delete;
  Traces& operator=(const Traces&) = delete;

  void add(const FinishedRequest& request);
  uint64_t dropped() const;

 private:
  const std::shared_ptr<TraceSender> sender_;  // shared with the thread
  std::thread thread_;
};

}  // namespace skein
