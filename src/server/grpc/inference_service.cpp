#include "server/grpc/inference_service.h"

#include <chrono>
#include <utility>

#include "base/log.h"
#include "server/answer/answer_job.h"
#include "server/grpc/generate_request.h"
#include "server/grpc/piece_writer.h"

namespace skein::rpc {
namespace {

constexpr uint64_t kWorkFactor = 6;     // of a request's bytes, as for a body of HTTP
constexpr size_t kMaxRequestId = 256;   // bytes of a caller's id
constexpr size_t kMaxTraceParent = 64;  // longer ones mean nothing
constexpr uint64_t kRetryAfterDrainS = 5;

// What logs, metrics and explanations call it.
constexpr Route kGenerateRoute{.method = "POST",
                               .pattern = "/vllm.Inference/Generate",
                               .auth = Auth::kNone,
                               .body_limit_bytes = kJsonBodyBytes,
                               .begins_work = true};

class StreamReactor final : public grpc::ServerWriteReactor<grpc::ByteBuffer>, public Wire {
 public:
  explicit StreamReactor(std::shared_ptr<RpcCall> call) : call_(std::move(call)) {}
  // The last thing of a handler: callbacks come from here on.
  StreamReactor* begun() {
    call_->attach(this);
    return this;
  }
  void write(const grpc::ByteBuffer& message) override { StartWrite(&message); }
  void finish(const grpc::Status& status, std::string_view) override { Finish(status); }

  void OnWriteDone(bool ok) override { call_->on_written(ok); }
  void OnCancel() override { call_->on_cancelled(); }
  void OnDone() override { delete this; }

 private:
  const std::shared_ptr<RpcCall> call_;
};

class UnaryReactor final : public grpc::ServerUnaryReactor, public Wire {
 public:
  UnaryReactor(std::shared_ptr<RpcCall> call, grpc::ByteBuffer* response)
      : call_(std::move(call)), response_(response) {}
  UnaryReactor* begun() {
    call_->attach(this);
    return this;
  }
  void write(const grpc::ByteBuffer&) override {}
  void finish(const grpc::Status& status, std::string_view whole) override {
    const grpc::Slice slice(whole.data(), whole.size());
    *response_ = grpc::ByteBuffer(&slice, 1);
    Finish(status);
  }

  void OnCancel() override { call_->on_cancelled(); }
  void OnDone() override { delete this; }

 private:
  const std::shared_ptr<RpcCall> call_;
  grpc::ByteBuffer* const response_;
};

class RefusedStream final : public grpc::ServerWriteReactor<grpc::ByteBuffer> {
 public:
  explicit RefusedStream(const grpc::Status& status) { Finish(status); }
  void OnDone() override { delete this; }
};

class RefusedUnary final : public grpc::ServerUnaryReactor {
 public:
  explicit RefusedUnary(const grpc::Status& status) { Finish(status); }
  void OnDone() override { delete this; }
};

// How long the caller waits; nothing: for ever.
std::optional<TimeUs> time_left_us(const grpc::CallbackServerContext& context) {
  using std::chrono::system_clock;
  const auto deadline = context.deadline();
  if (deadline == system_clock::time_point::max()) return std::nullopt;
  const auto left = deadline - system_clock::now();
  return std::max<TimeUs>(1, std::chrono::duration_cast<std::chrono::microseconds>(left).count());
}

http::Request request_of(const grpc::CallbackServerContext& context, std::string id) {
  http::Request request;
  request.request_id = std::move(id);
  const auto& metadata = context.client_metadata();
  if (const auto found = metadata.find("traceparent"); found != metadata.end()) {
    const auto value = found->second.substr(0, kMaxTraceParent);
    request.head.headers.push_back({"traceparent", std::string(value.data(), value.size())});
  }
  return request;
}

}  // namespace

struct RpcCalls::Place {
  explicit Place(std::shared_ptr<RpcCalls> owner) : calls(std::move(owner)) {}
  ~Place() {
    const std::lock_guard lock(calls->mutex_);
    if (is_counted) --calls->count_;
    if (is_named) calls->calls_.erase(at);
  }
  Place(const Place&) = delete;
  Place& operator=(const Place&) = delete;

  const std::shared_ptr<RpcCalls> calls;
  bool is_counted = false;
  bool is_named = false;
  decltype(calls_)::iterator at;
};

std::shared_ptr<RpcCall> RpcCalls::begin(const std::string& id) {
  auto place = std::make_shared<Place>(shared_from_this());
  auto call = std::make_shared<RpcCall>(place);
  const std::lock_guard lock(mutex_);
  if (count_ >= limit_) return nullptr;
  ++count_;
  place->is_counted = true;
  if (id.empty()) return call;
  place->at = calls_.emplace(id, call);
  place->is_named = true;
  return call;
}

void RpcCalls::abort(const std::string& id) {
  std::vector<std::shared_ptr<RpcCall>> found;
  {
    const std::lock_guard lock(mutex_);
    const auto [first, last] = calls_.equal_range(id);
    for (auto at = first; at != last; ++at) {
      if (auto call = at->second.lock()) found.push_back(std::move(call));
    }
  }
  for (const auto& call : found) call->abort();
}

InferenceService::Begun InferenceService::begin(const grpc::CallbackServerContext& context,
                                                const grpc::ByteBuffer& request, bool stream) {
  const auto refuse = [](const api::Error& error) { return Begun{nullptr, status_of(error)}; };
  if (context_.draining) {
    context_.metrics.on_rejected("", Rejection::kDraining);
    return refuse(api::draining(kRetryAfterDrainS));
  }
  ::vllm::GenerateRequest message;
  grpc::ByteBuffer bytes = request;
  const size_t size = bytes.Length();
  if (const auto read =
          grpc::SerializationTraits<::vllm::GenerateRequest>::Deserialize(&bytes, &message);
      !read.ok()) {
    return {nullptr, {grpc::StatusCode::INVALID_ARGUMENT, "The message cannot be read."}};
  }
  if (message.request_id().size() > kMaxRequestId) {
    return refuse(
        api::invalid_field("request_id", fmt::format("It has {} bytes; {} are allowed.",
                                                     message.request_id().size(), kMaxRequestId)));
  }
  auto generate = read_generate(message, stream);
  if (!generate.ok()) return refuse(generate.error());
  if (!generate->request.options.model.empty() && generate->request.options.model != model_) {
    return refuse(api::model_not_found(generate->request.options.model));
  }
  generate->request.options.model = model_;
  generate->request.options.timeout_us = time_left_us(context);
  Call call{.route = &kGenerateRoute, .id = {}, .principal = nullptr};
  call.principal = principal_of(generate->terms, context_.keys, context_.store.salt_key());
  call.priority = generate->terms.priority;
  call.request = request_of(context, message.request_id());
  auto memory = std::make_shared<ByteBudget::Hold>(context_.memory, call.principal->key_id);
  if (!memory->resize(kWorkFactor * size)) return refuse(api::overloaded(1));
  call.request.memory = std::move(memory);
  if (!generate->terms.bypasses_cache)
    tenants_.add(call.principal->salt, generate->terms.cache_salt);
  auto rpc = calls_->begin(message.request_id());
  if (rpc == nullptr) return refuse(api::overloaded(1));
  const Priority priority = call.priority;
  const std::string owner = call.principal->key_id;
  const auto drop = [rpc, &server = context_] { rpc->end(status_of(server.no_worker())); };
  // Held by the task, so that the call ends whatever becomes of it.
  auto sink = std::make_shared<std::unique_ptr<RpcSink>>(std::make_unique<RpcSink>(rpc));
  auto job = [&server = context_, sink = std::move(sink), call = std::move(call),
              wanted = std::move(generate->request)]() mutable {
    std::make_shared<AnswerJob>(server, std::move(call), kGenerateAnswer, std::move(wanted),
                                std::move(*sink))
        ->begin();
  };
  if (!context_.workers.post(priority, owner, std::move(job), drop)) drop();
  return {std::move(rpc), {}};
}

grpc::ServerUnaryReactor* InferenceService::Generate(grpc::CallbackServerContext* context,
                                                     const grpc::ByteBuffer* request,
                                                     grpc::ByteBuffer* response) {
  Begun begun = begin(*context, *request, false);
  if (begun.call == nullptr) return new RefusedUnary(begun.refused);
  return (new UnaryReactor(std::move(begun.call), response))->begun();
}

grpc::ServerWriteReactor<grpc::ByteBuffer>* InferenceService::GenerateStream(
    grpc::CallbackServerContext* context, const grpc::ByteBuffer* request) {
  Begun begun = begin(*context, *request, true);
  if (begun.call == nullptr) return new RefusedStream(begun.refused);
  return (new StreamReactor(std::move(begun.call)))->begun();
}

}  // namespace skein::rpc
