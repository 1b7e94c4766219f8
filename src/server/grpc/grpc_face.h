// GrpcFace: vLLM's gRPC services (vllm.Inference, vllm.Control, and the standard's health) for
// routers that speak to engines, as NVIDIA Dynamo's sidecar does. One listener a model, on ports
// one after the other.
//
// Requests become the same jobs as those of HTTP: the same door, the same accounts, the same
// answers. Nobody shows a key here, and tenants are who the router says they are: so the default is
// loopback alone. Built in with SKEIN_FLEET.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "base/status.h"

namespace skein {

class KvPublishers;
struct ServerContext;

struct GrpcSettings {
  struct Model {
    std::string id;
    std::string tokenizer;  // the folder of its tokenizer, as routers read it
  };
  std::string host = "127.0.0.1";
  uint16_t port = 0;             // of the first model; 0: any, of each
  bool insecure_open = false;    // other machines may connect
  std::vector<Model> models;     // none: nothing listens
  size_t max_calls = 8192;       // of answers at a time
  size_t max_connections = 256;  // of all models; more are cut
};

// Whether this build can.
bool has_grpc();

class GrpcFace {
 public:
  // Listens, and answers from now on. kInvalidArgument for an address that others reach, and where
  // it is not built in. All that is given outlives it.
  static Result<std::unique_ptr<GrpcFace>> open(const GrpcSettings& settings,
                                                ServerContext& context, KvPublishers& events);
  ~GrpcFace();

  // The model and its port, in the order of the settings.
  const std::vector<std::pair<std::string, uint16_t>>& ports() const;
  // Takes no more calls, and ends those that are there when the time is over.
  void stop(std::chrono::milliseconds grace);

 private:
  class Impl;
  explicit GrpcFace(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

}  // namespace skein
