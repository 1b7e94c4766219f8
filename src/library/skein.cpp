// libskein: the public header over SchedulerManager.
#include <random>
#include <skein/skein.h>
#include <utility>

#include "base/clock.h"
#include "base/compute_pool.h"
#include "base/cpus.h"
#include "base/memory.h"
#include "engine/load_served_model.h"
#include "engine/prompt.h"
#include "engine/scheduler_manager.h"
#include "text/ordered_json.h"
#include "text/text_assembler.h"

namespace skein {
namespace {

template <class T>
T or_throw(Result<T> result) {
  if (!result.ok()) throw Error(result.message());
  return std::move(result).value();
}

const char* public_name(FinishReason reason) {
  switch (reason) {
    case FinishReason::kStop:
      return "stop";
    case FinishReason::kToolCalls:
      return "stop";
    case FinishReason::kLength:
      return "length";
    case FinishReason::kTimedOut:
      return "timed_out";
    case FinishReason::kError:
      return "error";
    default:
      return "cancelled";
  }
}

Precision precision_of(const std::string& name) {
  if (name == "f32") return Precision::kF32;
  if (name == "default") return Precision::kDefault;
  if (name == "high") return Precision::kHigh;
  throw Error("precision is '" + name + "'; it is f32, default or high");
}

}  // namespace

struct Stream::Impl {
  RequestHandle request;
  TextAssembler text;
  StreamChunk chunk;
  Summary summary;
  bool ended = false;

  void finish(const GenerationEnd& end);
};

struct Model::Impl {
  SystemClock clock;
  ComputePool pool;
  SchedulerManager manager;
  ModelLease lease;

  Impl(const std::string& path, const ServingOptions& serving, unsigned threads)
      : pool(threads),
        manager({.memory_bytes = available_memory()}, make_model_loader(serving, pool, clock),
                clock) {
    const Status added = manager.add({.id = path, .path = path, .pinned = true});
    if (!added.ok()) throw Error(added.message());
    lease = or_throw(manager.acquire(path));
  }

  const LoadedTokenizer& tokenizer() const {
    const LoadedTokenizer* tokenizer = lease->model().tokenizer();
    if (tokenizer == nullptr) throw Error("the model's files hold no tokenizer");
    return *tokenizer;
  }
  std::unique_ptr<Stream::Impl> submit(std::vector<TokenId> prompt, const GenerateOptions& options);
};

std::unique_ptr<Stream::Impl> Model::Impl::submit(std::vector<TokenId> prompt,
                                                  const GenerateOptions& options) {
  GenerationRequest request;
  request.prompt = std::move(prompt);
  request.sampling = lease->model().sampling_defaults();
  if (options.temperature) request.sampling.temperature = *options.temperature;
  if (options.top_p) request.sampling.top_p = *options.top_p;
  if (options.top_k) request.sampling.top_k = *options.top_k;
  request.sampling.seed = options.seed ? *options.seed : std::random_device{}();
  request.max_tokens = options.max_tokens;
  request.priority = static_cast<Priority>(options.request_class);
  TextAssembler text = or_throw(TextAssembler::create(tokenizer().tokenizer, {}, options.stop));
  RequestHandle handle = or_throw(lease->submit(std::move(request), {}));
  return std::unique_ptr<Stream::Impl>(
      new Stream::Impl{std::move(handle), std::move(text), {}, {}, false});
}

Model Model::load(const std::string& path, const LoadOptions& options) {
  ServingOptions serving;
  serving.batch_max_batch_size = options.batch_max_batch_size;
  serving.batch_block_pool_size = options.batch_block_pool_size;
  serving.model.max_context = options.max_context;
  serving.model.precision = precision_of(options.precision);
  std::random_device random;
  serving.hash_key = {uint64_t{random()} << 32 | random(), uint64_t{random()} << 32 | random()};
  const unsigned threads = options.threads != 0 ? options.threads : usable_cpus();
  return Model(std::make_unique<Impl>(path, serving, threads));
}

Model::Model(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
Model::Model(Model&&) noexcept = default;
Model& Model::operator=(Model&&) noexcept = default;
Model::~Model() = default;

Stream Model::chat(const std::vector<Message>& messages, const GenerateOptions& options) {
  OrderedJson context;
  context["messages"] = OrderedJson::array();
  for (const Message& message : messages) {
    context["messages"].push_back({{"role", message.role}, {"content", message.content}});
  }
  context["tools"] = nullptr;
  context["documents"] = nullptr;
  context["add_generation_prompt"] = true;
  const LoadedTokenizer& tokenizer = impl_->tokenizer();
  const LoadedModel& model = impl_->lease->model();
  if (model.chat_template() == nullptr) throw Error(model.chat_template_status().message());
  const jinja::Rendered prompt =
      or_throw(render_prompt(*model.chat_template(), std::move(context), false, impl_->clock));
  return Stream(impl_->submit(or_throw(encode_prompt(tokenizer.tokenizer, prompt)), options));
}

Stream Model::complete(const std::string& prompt, const GenerateOptions& options) {
  const Tokenizer& tokenizer = impl_->tokenizer().tokenizer;
  return Stream(impl_->submit(or_throw(tokenizer.encode(prompt, {.add_special = true})), options));
}

Stream::Stream(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
Stream::Stream(Stream&&) noexcept = default;
Stream& Stream::operator=(Stream&&) noexcept = default;
Stream::~Stream() = default;

bool Stream::next(std::string& text) {
  Impl& self = *impl_;
  text.clear();
  while (text.empty() && !self.ended) {
    if (!self.request.stream().wait(self.chunk)) continue;
    for (const TokenId token : self.chunk.tokens) {
      if (self.text.stopped()) break;
      const Status pushed = self.text.push(token, text);
      if (!pushed.ok()) throw Error(pushed.message());
    }
    if (self.text.stopped()) self.request.cancel(FinishReason::kStop);
    if (!self.chunk.end) continue;
    self.text.finish(text);
    self.finish(*self.chunk.end);
  }
  return !text.empty();
}

void Stream::Impl::finish(const GenerationEnd& end) {
  ended = true;
  summary.prompt_tokens = end.prompt_tokens;
  summary.cached_tokens = end.cached_tokens;
  summary.generated_tokens = static_cast<unsigned>(text.tokens());
  summary.finish_reason = text.stopped() ? "stop" : public_name(end.reason);
  if (!text.stopped() && end.reason == FinishReason::kError) throw Error(end.status.message());
}

void Stream::cancel() {
  impl_->request.cancel(FinishReason::kClient);
}

const Summary& Stream::summary() const {
  return impl_->summary;
}

}  // namespace skein
