// vllm.Inference of one model.
#pragma once

#include <atomic>
#include <cstddef>
#include <grpcpp/grpcpp.h>
#include <map>
#include <memory>
#include <mutex>
#include <span>
#include <string>

#include "server/context.h"
#include "server/grpc/rpc_call.h"
#include "server/grpc/vllm.grpc.pb.h"
#include "server/kv_events/tenant_names.h"

namespace skein::rpc {

// The calls that are being answered, of all models: so many at most, and by the ids that their
// callers gave them. Any thread may use it.
class RpcCalls : public std::enable_shared_from_this<RpcCalls> {
 public:
  explicit RpcCalls(size_t limit) : limit_(limit) {}

  // Null: there are too many.
  std::shared_ptr<RpcCall> begin(const std::string& id);
  // Calls off those of that id.
  void abort(const std::string& id);

 private:
  struct Place;
  const size_t limit_;
  std::mutex mutex_;
  size_t count_ = 0;
  std::multimap<std::string, std::weak_ptr<RpcCall>> calls_;
};

class InferenceService final
    : public ::vllm::Inference::WithRawCallbackMethod_Generate<
          ::vllm::Inference::WithRawCallbackMethod_GenerateStream<::vllm::Inference::Service>> {
 public:
  // All of it outlives the service.
  InferenceService(ServerContext& context, std::string model, std::shared_ptr<RpcCalls> calls,
                   TenantNames& tenants)
      : context_(context), model_(std::move(model)), calls_(std::move(calls)), tenants_(tenants) {}

  grpc::ServerUnaryReactor* Generate(grpc::CallbackServerContext* context,
                                     const grpc::ByteBuffer* request,
                                     grpc::ByteBuffer* response) override;
  grpc::ServerWriteReactor<grpc::ByteBuffer>* GenerateStream(
      grpc::CallbackServerContext* context, const grpc::ByteBuffer* request) override;

 private:
  struct Begun {
    std::shared_ptr<RpcCall> call;
    grpc::Status refused;  // without a call
  };
  Begun begin(const grpc::CallbackServerContext& context, const grpc::ByteBuffer& request,
              bool stream);

  ServerContext& context_;
  const std::string model_;
  const std::shared_ptr<RpcCalls> calls_;
  TenantNames& tenants_;
};

}  // namespace skein::rpc
