#include "server/grpc/grpc_face.h"

#include <algorithm>
#include <fmt/format.h>
#include <google/protobuf/stubs/logging.h>
#include <grpc/support/log.h>
#include <grpcpp/grpcpp.h>
#include <utility>

#include "base/log.h"
#include "server/grpc/connection_door.h"
#include "server/grpc/control_service.h"
#include "server/listen_socket.h"
#include "server/router.h"

namespace skein {
namespace {

constexpr int kMaxStreams = 1024;                // of one connection
constexpr int kMaxMetadataBytes = 16 << 10;      // of one call
constexpr int kHandshakeMs = 10'000;             // that a connection may take to say what it speaks
constexpr size_t kMemoryBytes = 256U << 20;      // for what is being read of all calls
constexpr int kMaxThreads = 64;                  // that gRPC may have of its own
constexpr int kIdleMs = 300'000;                 // that a connection may be without a call
constexpr std::chrono::milliseconds kLast{500};  // for calls that were called off to end

using Acceptor = grpc::experimental::ExternalConnectionAcceptor;

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
  std::unique_ptr<Acceptor> acceptor;
};

// It answers from now on those who are handed to its acceptor.
Status build(Listener& listener) {
  grpc::ServerBuilder builder;
  listener.acceptor = builder.experimental().AddExternalConnectionAcceptor(
      grpc::ServerBuilder::experimental_type::ExternalConnectionType::FROM_FD,
      grpc::InsecureServerCredentials());
  builder.RegisterService(&listener.inference);
  builder.RegisterService(&listener.control);
  builder.RegisterService(&listener.health);
  builder.SetMaxReceiveMessageSize(static_cast<int>(kJsonBodyBytes));
  builder.AddChannelArgument(GRPC_ARG_MAX_CONCURRENT_STREAMS, kMaxStreams);
  builder.AddChannelArgument(GRPC_ARG_MAX_METADATA_SIZE, kMaxMetadataBytes);
  builder.AddChannelArgument(GRPC_ARG_SERVER_HANDSHAKE_TIMEOUT_MS, kHandshakeMs);
  builder.AddChannelArgument(GRPC_ARG_MAX_CONNECTION_IDLE_MS, kIdleMs);
  grpc::ResourceQuota quota("skein");
  quota.Resize(kMemoryBytes).SetMaxThreads(kMaxThreads);
  builder.SetResourceQuota(quota);
  listener.server = builder.BuildAndStart();
  if (listener.server == nullptr) return unavailable("--grpc: gRPC did not start");
  return {};
}

void take(Acceptor& acceptor, int fd) {
  Acceptor::NewConnectionParameters connection;
  connection.fd = fd;
  acceptor.HandleNewConnection(&connection);
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
  Impl(const GrpcSettings& settings, const Clock& clock)
      : calls_(std::make_shared<rpc::RpcCalls>(settings.max_calls)),
        door_(settings.max_connections, clock) {}
  ~Impl() { stop(std::chrono::milliseconds(0)); }

  Status open(const GrpcSettings& settings, ServerContext& context, KvPublishers& events) {
    uint32_t port = settings.port;
    for (const GrpcSettings::Model& model : settings.models) {
      if (port > UINT16_MAX) {
        return invalid_argument("--grpc: '{}' would have port {}, beyond {}", model.id, port,
                                UINT16_MAX);
      }
      auto listener = std::make_unique<Listener>(context, model, calls_, events);
      SKEIN_TRY(build(*listener));
      SKEIN_ASSIGN(const uint16_t bound,
                   door_.listen(settings.host, static_cast<uint16_t>(port),
                                [to = listener->acceptor.get()](int fd) { take(*to, fd); }));
      log_info("gRPC of {}: port {}", model.id, bound);
      ports_.emplace_back(model.id, bound);
      listeners_.push_back(std::move(listener));
      if (port != 0) ++port;
    }
    return door_.start();
  }

  // A call that was called off ends at once, whatever its answer does.
  void stop(std::chrono::milliseconds grace) {
    door_.stop();
    const auto until = std::chrono::system_clock::now() + std::max(grace, kLast);
    for (const auto& listener : listeners_) listener->server->Shutdown(until);
    listeners_.clear();
  }

  const std::shared_ptr<rpc::RpcCalls> calls_;
  std::vector<std::unique_ptr<Listener>> listeners_;
  std::vector<std::pair<std::string, uint16_t>> ports_;
  rpc::ConnectionDoor door_;  // goes before what it hands connections to
};

Result<std::unique_ptr<GrpcFace>> GrpcFace::open(const GrpcSettings& settings,
                                                 ServerContext& context, KvPublishers& events) {
  SKEIN_ASSIGN(const ListenAddress address, listen_address("--grpc", settings.host, settings.port));
  if (!address.is_loopback() && !settings.insecure_open) {
    return invalid_argument(
        "--grpc {}: other machines reach it, and nobody shows a key there; bind to 127.0.0.1, or "
        "say --grpc-insecure-open",
        settings.host);
  }
  gpr_set_log_function(log_of_grpc);
  gpr_set_log_verbosity(GPR_LOG_SEVERITY_ERROR);
  // What is wrong with a message its sender is told, and not stderr, a line for each.
  google::protobuf::SetLogHandler(nullptr);
  auto impl = std::make_unique<Impl>(settings, context.clock);
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
