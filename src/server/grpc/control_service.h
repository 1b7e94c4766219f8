// vllm.Control of one model, and the standard's health.
#pragma once

#include <grpcpp/grpcpp.h>
#include <memory>
#include <string>

#include "server/context.h"
#include "server/grpc/grpc_face.h"
#include "server/grpc/health.grpc.pb.h"
#include "server/grpc/inference_service.h"
#include "server/grpc/vllm.grpc.pb.h"
#include "server/kv_events/kv_publishers.h"

namespace skein::rpc {

class ControlService final : public ::vllm::Control::CallbackService {
 public:
  ControlService(ServerContext& context, GrpcSettings::Model model, std::shared_ptr<RpcCalls> calls,
                 const KvPublishers& events)
      : context_(context), model_(std::move(model)), calls_(std::move(calls)), events_(events) {}

  grpc::ServerUnaryReactor* GetServerInfo(grpc::CallbackServerContext* context,
                                          const ::vllm::GetServerInfoRequest* request,
                                          ::vllm::ServerInfo* info) override;
  grpc::ServerUnaryReactor* GetModelInfo(grpc::CallbackServerContext* context,
                                         const ::vllm::GetModelInfoRequest* request,
                                         ::vllm::ModelInfo* info) override;
  grpc::ServerUnaryReactor* Abort(grpc::CallbackServerContext* context,
                                  const ::vllm::AbortRequest* request,
                                  ::vllm::AbortResponse* response) override;
  grpc::ServerUnaryReactor* GetKvEventSources(grpc::CallbackServerContext* context,
                                              const ::vllm::GetKvEventSourcesRequest* request,
                                              ::vllm::GetKvEventSourcesResponse* response) override;

 private:
  ServerContext& context_;
  const GrpcSettings::Model model_;
  const std::shared_ptr<RpcCalls> calls_;
  const KvPublishers& events_;
};

// As /health says it, for the whole server and for both of vLLM's services.
class HealthService final : public ::grpc::health::v1::Health::CallbackService {
 public:
  explicit HealthService(const ServerContext& context) : context_(context) {}
  grpc::ServerUnaryReactor* Check(grpc::CallbackServerContext* context,
                                  const ::grpc::health::v1::HealthCheckRequest* request,
                                  ::grpc::health::v1::HealthCheckResponse* response) override;

 private:
  const ServerContext& context_;
};

}  // namespace skein::rpc
