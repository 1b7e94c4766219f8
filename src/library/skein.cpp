// libskein: the public header over SchedulerManager.
#include <fmt/format.h>
#include <optional>
#include <random>
#include <skein/skein.h>
#include <utility>

#include "base/clock.h"
#include "base/compute_pool.h"
#include "base/resources.h"
#include "engine/manager/load_served_model.h"
#include "engine/manager/scheduler_manager.h"
#include "generate/events.h"
#include "generate/prompt.h"

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

std::optional<FormSpec> form_of(const GenerateOptions& options) {
  std::vector<FormSpec> asked;
  using Kind = FormSpec::Kind;
  if (!options.json_schema.empty()) {
    asked.push_back({.kind = Kind::kJsonSchema, .text = options.json_schema, .strict = true});
  }
  if (!options.regex.empty()) asked.push_back({.kind = Kind::kRegex, .text = options.regex});
  if (!options.grammar.empty()) asked.push_back({.kind = Kind::kGbnf, .text = options.grammar});
  if (!options.choice.empty()) {
    asked.push_back({.kind = Kind::kChoice, .choices = options.choice});
  }
  if (asked.size() > 1) {
    throw Error(fmt::format("{} forms are asked for; an answer has one", asked.size()));
  }
  return asked.empty() ? std::nullopt : std::optional(std::move(asked.front()));
}

std::shared_ptr<const Form> compile(const LoadedModel& model, const FormSpec& spec) {
  if (model.forms() == nullptr) throw Error(model.tokenizer_status().message());
  if (const Status status = model.forms()->prepare(); !status.ok()) throw Error(status.message());
  auto form = model.forms()->compile(spec);
  if (form.ok()) return std::move(form).value();
  const grammar::FormError& error = form.error();
  throw Error(fmt::format("{}{}{}: {}", grammar::form_code_name(error.code),
                          error.where.empty() ? "" : " at ", error.where, error.message));
}

}  // namespace

struct Stream::Impl {
  std::unique_ptr<Completion> completion;
  std::vector<AnswerEvent> events = {};
  Summary summary = {};
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

  PromptBuilder prompts() const {
    return PromptBuilder(lease->model(), lease->max_request_tokens(), clock);
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
  if (const auto form = form_of(options)) request.form = compile(lease->model(), *form);
  return std::unique_ptr<Stream::Impl>(new Stream::Impl{
      or_throw(Completion::start(*lease, std::move(request), {.stops = options.stop}))});
}

Model Model::load(const std::string& path, const LoadOptions& options) {
  ServingOptions serving;
  SchedulerConfig& scheduler = serving.engine.scheduler;
  scheduler.max_batch = options.batch_max_batch_size;
  scheduler.pool_blocks = options.batch_block_pool_size;
  serving.model.max_context = options.max_context;
  serving.model.precision = precision_of(options.precision);
  std::random_device random;
  scheduler.hash_key = {uint64_t{random()} << 32 | random(), uint64_t{random()} << 32 | random()};
  const unsigned threads = options.threads != 0 ? options.threads : usable_cpus();
  return Model(std::make_unique<Impl>(path, serving, threads));
}

Model::Model(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
Model::Model(Model&&) noexcept = default;
Model& Model::operator=(Model&&) noexcept = default;
Model::~Model() = default;

Stream Model::chat(const std::vector<Message>& messages, const GenerateOptions& options) {
  OrderedJson said = OrderedJson::array();
  for (const Message& message : messages) {
    said.push_back({{"role", message.role}, {"content", message.content}});
  }
  auto prompt = impl_->prompts().encode_chat({.context = chat_context(std::move(said))});
  return Stream(impl_->submit(or_throw(std::move(prompt)), options));
}

Stream Model::complete(const std::string& prompt, const GenerateOptions& options) {
  return Stream(impl_->submit(or_throw(impl_->prompts().encode_text(prompt)), options));
}

Stream::Stream(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
Stream::Stream(Stream&&) noexcept = default;
Stream& Stream::operator=(Stream&&) noexcept = default;
Stream::~Stream() = default;

bool Stream::next(std::string& text) {
  Impl& self = *impl_;
  text.clear();
  while (text.empty() && !self.ended) {
    self.completion->wait(self.events);
    for (const AnswerEvent& event : self.events) {
      if (const auto* content = std::get_if<AnswerContent>(&event)) text += content->text;
      if (const auto* end = std::get_if<AnswerEnd>(&event)) self.finish(end->how);
    }
  }
  return !text.empty();
}

void Stream::Impl::finish(const GenerationEnd& end) {
  ended = true;
  summary.prompt_tokens = end.prompt_tokens;
  summary.cached_tokens = end.cached_tokens;
  summary.generated_tokens = end.generated_tokens;
  summary.finish_reason = public_name(end.reason);
  if (end.reason == FinishReason::kError) throw Error(end.status.message());
}

void Stream::cancel() {
  impl_->completion->cancel();
}

const Summary& Stream::summary() const {
  return impl_->summary;
}

}  // namespace skein
