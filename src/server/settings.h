// ServerSettings: everything about a server that its operator decides.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "server/grpc/grpc_face.h"
#include "server/http/http_server.h"
#include "server/kv_events/kv_publishers.h"
#include "server/observe/finished_request.h"
#include "server/store/store.h"

namespace skein {

struct ServerSettings {
  http::ServerOptions http;
  http::Workers::Options workers;
  uint64_t request_memory_bytes = ByteBudget::kDefaultBytes;  // held by all requests together
  StoreOptions store;
  // For how long keys are taken as they were last, while a shared store does not answer.
  int64_t store_grace_s = 600;
  std::string default_model;  // what an absent or empty `model` means
  std::string version;
  KvEventSettings kv_events;
  GrpcSettings grpc;
  bool share_prefixes = false;  // all tenants use one prefix cache
  bool insecure_open = false;   // the server may be reached from other machines without any key
  // While there are no keys: the names of the server, beside the one it is bound to.
  std::vector<std::string> allow_hosts;
  size_t batch_lines = 4;                                   // of batches, at a time
  std::chrono::milliseconds keepalive_interval{15'000};     // of a stream that says nothing
  std::chrono::milliseconds keep_patience{5'000};           // with a store that gets an answer
  std::function<void(const FinishedRequest&)> log_request;  // may be empty
  std::string otlp_endpoint;  // where spans of requests are sent; empty: nowhere
  // Called on a worker when an admin asks for a drain.
  std::function<void()> on_drain_request;
};

}  // namespace skein
