#include "server/grpc/control_service.h"

#include <algorithm>
#include <fmt/format.h>

#include "sched/types.h"

namespace skein::rpc {
namespace {

grpc::ServerUnaryReactor* finished(grpc::CallbackServerContext* context, grpc::Status status = {}) {
  grpc::ServerUnaryReactor* reactor = context->DefaultReactor();
  reactor->Finish(std::move(status));
  return reactor;
}

std::string tcp(const std::string& host, uint16_t port) {
  const bool is_v6 = host.find(':') != std::string::npos;
  return is_v6 ? fmt::format("tcp://[{}]:{}", host, port) : fmt::format("tcp://{}:{}", host, port);
}

}  // namespace

grpc::ServerUnaryReactor* ControlService::GetServerInfo(grpc::CallbackServerContext* context,
                                                        const ::vllm::GetServerInfoRequest*,
                                                        ::vllm::ServerInfo* info) {
  std::shared_ptr<ServedModel> served;
  for (const ModelStatus& model : context_.models.models()) {
    if (model.config.id == model_.id) served = model.served;
  }
  if (served == nullptr) {
    return finished(context, {grpc::StatusCode::UNAVAILABLE, "The model is not loaded."});
  }
  info->set_engine_version("skein " + context_.settings.version);
  info->set_api_version("vllm");
  info->set_instance_id(context_.settings.store.node);
  auto& parallelism = *info->mutable_parallelism();
  parallelism.set_tensor_parallel_size(1);
  parallelism.set_pipeline_parallel_size(1);
  parallelism.set_data_parallel_size(1);
  parallelism.set_decode_context_parallel_size(1);
  parallelism.set_world_size(1);
  parallelism.set_data_parallel_size_local(1);
  info->set_max_model_len(
      static_cast<uint32_t>(std::min<uint64_t>(served->max_request_tokens(), UINT32_MAX)));
  info->set_kv_block_size(kBlockTokens);
  info->set_total_kv_blocks(served->snapshot().scheduler.pool_blocks);
  info->set_max_running_requests(served->max_batch());
  return finished(context);
}

grpc::ServerUnaryReactor* ControlService::GetModelInfo(grpc::CallbackServerContext* context,
                                                       const ::vllm::GetModelInfoRequest*,
                                                       ::vllm::ModelInfo* info) {
  info->set_model_id(model_.tokenizer);
  info->set_served_model_name(model_.id);
  info->set_supports_text_input(true);
  info->set_supports_token_ids_input(true);
  return finished(context);
}

grpc::ServerUnaryReactor* ControlService::Abort(grpc::CallbackServerContext* context,
                                                const ::vllm::AbortRequest* request,
                                                ::vllm::AbortResponse*) {
  for (const std::string& id : request->request_ids()) calls_->abort(id);
  return finished(context);
}

grpc::ServerUnaryReactor* ControlService::GetKvEventSources(
    grpc::CallbackServerContext* context, const ::vllm::GetKvEventSourcesRequest*,
    ::vllm::GetKvEventSourcesResponse* response) {
  const KvPublisher* publisher = events_.find(model_.id);
  if (publisher == nullptr) return finished(context);
  const KvPublisher::Options& options = publisher->options();
  auto& source = *response->add_sources();
  source.set_transport("zmq");
  source.set_endpoint(tcp(options.host, publisher->port()));
  source.set_replay_endpoint(tcp(options.host, publisher->replay_port()));
  source.set_topic(options.topic);
  source.set_data_parallel_rank(0);
  source.set_encoding("msgpack");
  source.set_schema_version(1);
  source.set_buffer_steps(static_cast<uint32_t>(options.kept_messages));
  source.set_hwm(static_cast<uint32_t>(options.kept_messages));
  source.set_max_queue_size(static_cast<uint32_t>(options.kept_messages));
  return finished(context);
}

grpc::ServerUnaryReactor* HealthService::Check(
    grpc::CallbackServerContext* context, const ::grpc::health::v1::HealthCheckRequest* request,
    ::grpc::health::v1::HealthCheckResponse* response) {
  using ::grpc::health::v1::HealthCheckResponse;
  const std::string& name = request->service();
  if (!name.empty() && name != "vllm.Inference" && name != "vllm.Control") {
    return finished(context, {grpc::StatusCode::NOT_FOUND, "There is no such service."});
  }
  response->set_status(context_.why_not_ready() == nullptr ? HealthCheckResponse::SERVING
                                                           : HealthCheckResponse::NOT_SERVING);
  return finished(context);
}

}  // namespace skein::rpc
