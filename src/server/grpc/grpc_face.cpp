#include "server/grpc/grpc_face.h"

#include <algorithm>
#include <fmt/format.h>
#include <grpc/support/log.h>
#include <grpcpp/grpcpp.h>
#include <utility>

#include "base/log.h"
#include "server/grpc/control_service.h"
#include "server/router.h"

namespace skein {
namespace {

constexpr int kMaxStreams = 1024;                // of one connection
constexpr int kMaxMetadataBytes = 16 << 10;      // of one call
constexpr int kHandshakeMs = 10'000;             // that a connection may take to say what it speaks
constexpr size_t kMemoryBytes = 256U << 20;      // for what is being read of all calls
constexpr int kMaxThreads = 64;                  // that gRPC may have of its own
constexpr std::chrono::milliseconds kLast{500};  // for calls that were called off to end

bool is_loopback(const std::string& host) {
  return host == "localhost" || host == "::1" || host.starts_with("127.");
}

// One listener and what is asked there.
struct Listener {
  Listener(ServerContext& context, const GrpcSettings::Model& model,
           const std::shared_ptr<rpc::RpcCalls>& calls, KvPublishers& events)
      : inference(context, model.id, calls, events.tenants()),
        control(context, model, calls, events),
        health(context) {}

  rpc::InferenceService inference;
  rpc::ControlService control;
  rpc::HealthService health;
  std::unique_ptr<grpc::Server> server;
};

Result<uint16_t> listen(Listener& listener, const GrpcSettings& settings, uint16_t port) {
  const bool is_v6 = settings.host.find(':') != std::string::npos;
  const std::string address = is_v6 ? fmt::format("[{}]:{}", settings.host, port)
                                    : fmt::format("{}:{}", settings.host, port);
  int bound = 0;
  grpc::ServerBuilder builder;
  builder.AddListeningPort(address, grpc::InsecureServerCredentials(), &bound);
  builder.RegisterService(&listener.inference);
  builder.RegisterService(&listener.control);
  builder.RegisterService(&listener.health);
  builder.SetMaxReceiveMessageSize(static_cast<int>(kJsonBodyBytes));
  builder.AddChannelArgument(GRPC_ARG_ALLOW_REUSEPORT,
                             0);  // another server is told that it is taken
  builder.AddChannelArgument(GRPC_ARG_MAX_CONCURRENT_STREAMS, kMaxStreams);
  builder.AddChannelArgument(GRPC_ARG_MAX_METADATA_SIZE, kMaxMetadataBytes);
  builder.AddChannelArgument(GRPC_ARG_SERVER_HANDSHAKE_TIMEOUT_MS, kHandshakeMs);
  grpc::ResourceQuota quota("skein");
  quota.Resize(kMemoryBytes).SetMaxThreads(kMaxThreads);
  builder.SetResourceQuota(quota);
  listener.server = builder.BuildAndStart();
  if (listener.server == nullptr || bound <= 0) {
    return unavailable("--grpc: nothing can listen on {}", address);
  }
  return static_cast<uint16_t>(bound);
}

void log_of_grpc(gpr_log_func_args* args) {
  log_warning("grpc: {}", args->message);
}

}  // namespace

bool has_grpc() {
  return true;
}

class GrpcFace::Impl {
 public:
  explicit Impl(size_t max_calls) : calls_(std::make_shared<rpc::RpcCalls>(max_calls)) {}
  ~Impl() { stop(std::chrono::milliseconds(0)); }

  Status open(const GrpcSettings& settings, ServerContext& context, KvPublishers& events) {
    uint32_t port = settings.port;
    for (const GrpcSettings::Model& model : settings.models) {
      if (port > UINT16_MAX) {
        return invalid_argument("--grpc: '{}' would have port {}, beyond {}", model.id, port,
                                UINT16_MAX);
      }
      auto listener = std::make_unique<Listener>(context, model, calls_, events);
      SKEIN_ASSIGN(const uint16_t bound, listen(*listener, settings, static_cast<uint16_t>(port)));
      log_info("gRPC of {}: port {}", model.id, bound);
      ports_.emplace_back(model.id, bound);
      listeners_.push_back(std::move(listener));
      if (port != 0) ++port;
    }
    return {};
  }

  // A call that was called off ends at once, whatever its answer does.
  void stop(std::chrono::milliseconds grace) {
    const auto until = std::chrono::system_clock::now() + std::max(grace, kLast);
    for (const auto& listener : listeners_) listener->server->Shutdown(until);
    listeners_.clear();
  }

  const std::shared_ptr<rpc::RpcCalls> calls_;
  std::vector<std::unique_ptr<Listener>> listeners_;
  std::vector<std::pair<std::string, uint16_t>> ports_;
};

Result<std::unique_ptr<GrpcFace>> GrpcFace::open(const GrpcSettings& settings,
                                                 ServerContext& context, KvPublishers& events) {
  if (!is_loopback(settings.host) && !settings.insecure_open) {
    return invalid_argument(
        "--grpc {}: other machines reach it, and nobody shows a key there; bind to 127.0.0.1, or "
        "say --grpc-insecure-open",
        settings.host);
  }
  gpr_set_log_function(log_of_grpc);
  gpr_set_log_verbosity(GPR_LOG_SEVERITY_ERROR);
  auto impl = std::make_unique<Impl>(settings.max_calls);
  SKEIN_TRY(impl->open(settings, context, events));
  return std::unique_ptr<GrpcFace>(new GrpcFace(std::move(impl)));
}

GrpcFace::GrpcFace(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
GrpcFace::~GrpcFace() = default;

const std::vector<std::pair<std::string, uint16_t>>& GrpcFace::ports() const {
  return impl_->ports_;
}

void GrpcFace::stop(std::chrono::milliseconds grace) {
  impl_->stop(grace);
}

}  // namespace skein
