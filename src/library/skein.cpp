// libskein: the public header over SchedulerManager.
#include <algorithm>
#include <deque>
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
#include "generate/answer_plan.h"
#include "generate/events.h"
#include "generate/prompt.h"
#include "generate/vectors.h"

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
      return "tool_calls";
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

std::optional<VectorKind> vectors_of(const std::string& pooling) {
  const std::optional<VectorKind> kind = vector_kind(pooling);
  if (pooling.empty() || (kind && *kind != VectorKind::kRank)) return kind;
  throw Error("pooling is '" + pooling + "'; it is mean, last or cls");
}

// Waits for the end of a request for a vector.
std::vector<float> read_vector(const RequestHandle& request) {
  StreamChunk chunk;
  while (!request.stream().wait(chunk) || !chunk.end) {
  }
  GenerationEnd& end = *chunk.end;
  if (end.reason == FinishReason::kError) throw Error(end.status.message());
  if (end.reason != FinishReason::kStop) throw Error(public_name(end.reason));
  return std::move(end.hidden);
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

FormCache& forms_of(const LoadedModel& model) {
  if (model.forms() == nullptr) throw Error(model.tokenizer_status().message());
  if (const Status status = model.forms()->prepare(); !status.ok()) throw Error(status.message());
  return *model.forms();
}

[[noreturn]] void refuse(const grammar::FormError& error) {
  throw Error(fmt::format("{}{}{}: {}", grammar::form_code_name(error.code),
                          error.where.empty() ? "" : " at ", error.where, error.message));
}

std::shared_ptr<const Form> compile(const LoadedModel& model, const FormSpec& spec) {
  auto form = forms_of(model).compile(spec);
  if (!form.ok()) refuse(form.error());
  return std::move(form).value();
}

OrderedJson tools_json(const GenerateOptions& options) {
  if (options.tools.empty()) return nullptr;
  OrderedJson tools = OrderedJson::parse(options.tools, nullptr, false);
  if (!tools.is_array()) throw Error("tools is no JSON list");
  return tools;
}

AnswerTerms terms_of(const GenerateOptions& options, const OrderedJson& tools) {
  AnswerTerms terms;
  terms.tools = dialog::tools_of(tools);
  if (tools.is_array() && terms.tools.size() != tools.size()) {
    throw Error(fmt::format("{} of {} tools are no functions with a name",
                            tools.size() - terms.tools.size(), tools.size()));
  }
  terms.parallel = options.parallel_tool_calls;
  terms.content = form_of(options);
  terms.limits_thought = options.reasoning_budget.has_value();
  if (options.tool_choice == "auto") return terms;
  terms.choice =
      options.tool_choice == "none" ? dialog::ToolChoice::kNone : dialog::ToolChoice::kRequired;
  if (options.tool_choice == "none") return terms;
  if (options.tool_choice != "required") {
    terms.callable = {options.tool_choice};
    terms.parallel = false;
  }
  const auto is_called = [&](const dialog::Tool& tool) {
    return terms.callable.empty() || tool.name == options.tool_choice;
  };
  if (std::none_of(terms.tools.begin(), terms.tools.end(), is_called)) {
    throw Error(fmt::format("tool_choice is {}, and no tool is called so", options.tool_choice));
  }
  return terms;
}

OrderedJson json_of(const Message& message) {
  OrderedJson out = {{"role", message.role}, {"content", message.content}};
  if (!message.tool_call_id.empty()) out["tool_call_id"] = message.tool_call_id;
  if (!message.reasoning.empty()) out["reasoning_content"] = message.reasoning;
  if (message.tool_calls.empty()) return out;
  out["tool_calls"] = OrderedJson::array();
  for (const ToolCall& call : message.tool_calls) {
    out["tool_calls"].push_back(
        {{"id", call.id},
         {"type", "function"},
         {"function", {{"name", call.name}, {"arguments", call.arguments}}}});
  }
  return out;
}

}  // namespace

struct Stream::Impl {
  std::unique_ptr<Completion> completion;
  std::vector<AnswerEvent> events = {};
  Summary summary = {};
  bool ended = false;

  void take_part(const AnswerEvent& event);
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
  std::unique_ptr<Stream::Impl> submit(std::vector<TokenId> prompt, const GenerateOptions& options,
                                       const AnswerPlan* plan);
  GenerationRequest vector_request(const std::string& text) const;
};

std::unique_ptr<Stream::Impl> Model::Impl::submit(std::vector<TokenId> prompt,
                                                  const GenerateOptions& options,
                                                  const AnswerPlan* plan) {
  GenerationRequest request;
  request.prompt = std::move(prompt);
  request.sampling = lease->model().sampling_defaults();
  if (options.temperature) request.sampling.temperature = *options.temperature;
  if (options.top_p) request.sampling.top_p = *options.top_p;
  if (options.top_k) request.sampling.top_k = *options.top_k;
  if (options.min_p) request.sampling.min_p = *options.min_p;
  request.sampling.seed = options.seed ? *options.seed : std::random_device{}();
  request.max_tokens = options.max_tokens;
  request.priority = static_cast<Priority>(options.request_class);
  ReadOptions reading{.stops = options.stop};
  if (plan != nullptr) {
    if (plan->has_form()) {
      forms_of(lease->model());
      std::optional<AnswerPlan::Refusal> refusal;
      request.form = plan->compile(refusal);
      if (refusal) refuse(refusal->error);
    }
    if (const TokenId token = plan->barred(); token != kNoToken) {
      request.sampling.banned.push_back(token);
    }
    request.thought_budget = options.reasoning_budget;
    reading.syntax = plan->syntax();
    reading.in_reasoning = plan->in_reasoning();
    reading.call_seed = request.sampling.seed;
  } else if (const auto form = form_of(options)) {
    request.form = compile(lease->model(), *form);
  }
  std::vector<std::string> relaxed;
  if (request.form) relaxed = request.form->relaxed;
  auto stream = std::unique_ptr<Stream::Impl>(new Stream::Impl{
      or_throw(Completion::start(*lease, std::move(request), std::move(reading)))});
  stream->summary.relaxed = std::move(relaxed);
  return stream;
}

GenerationRequest Model::Impl::vector_request(const std::string& text) const {
  const VectorFacts& facts = lease->model().vectors();
  if (!facts.kind || *facts.kind == VectorKind::kRank) {
    throw Error(facts.status.ok() ? "the model's files name no pooling that makes embeddings"
                                  : facts.status.message());
  }
  GenerationRequest request;
  request.prompt = or_throw(prompts().encode_text(text));
  request.pooling = pooling_of(facts);
  return request;
}

Model Model::load(const std::string& path, const LoadOptions& options) {
  ServingOptions serving;
  SchedulerConfig& scheduler = serving.engine.scheduler;
  scheduler.max_batch = options.batch_max_batch_size;
  scheduler.pool_blocks = options.batch_block_pool_size;
  serving.model.max_context = options.max_context;
  serving.model.precision = precision_of(options.precision);
  serving.model.vectors = vectors_of(options.pooling);
  if (options.sampling_defaults != "auto" && options.sampling_defaults != "openai") {
    throw Error("sampling_defaults is '" + options.sampling_defaults + "'; it is auto or openai");
  }
  serving.model.sampling.openai = options.sampling_defaults == "openai";
  const std::optional<Speculation> speculation = speculation_of(options.speculation);
  if (!speculation) {
    throw Error("speculation is '" + options.speculation + "'; it is off, ngram or auto");
  }
  serving.engine.speculation = *speculation;
  scheduler.step_drafts = kStepDrafts;
  serving.draft_model = options.draft_model;
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
  for (const Message& message : messages) said.push_back(json_of(message));
  Conversation conversation{chat_context(std::move(said))};
  conversation.context["tools"] = tools_json(options);
  AnswerTerms terms = terms_of(options, conversation.context["tools"]);
  const PromptBuilder prompts = impl_->prompts();
  const jinja::Rendered prompt = or_throw(prompts.render(std::move(conversation)));
  const AnswerPlan plan(impl_->lease->model(), std::move(terms), prompts.opens_thought(prompt));
  return Stream(impl_->submit(or_throw(prompts.encode(prompt)), options, &plan));
}

Stream Model::complete(const std::string& prompt, const GenerateOptions& options) {
  return Stream(impl_->submit(or_throw(impl_->prompts().encode_text(prompt)), options, nullptr));
}

std::vector<std::vector<float>> Model::embed(const std::vector<std::string>& texts,
                                             unsigned dimensions) {
  ModelLease& lease = impl_->lease;
  const uint32_t width = lease->model().spec().hidden;
  if (dimensions > width) {
    throw Error(
        fmt::format("{} dimensions are asked for; the model's vectors have {}", dimensions, width));
  }
  std::vector<std::vector<float>> vectors;
  std::deque<RequestHandle> running;
  const auto take_first = [&] {
    vectors.push_back(or_throw(unit_vector(read_vector(running.front()), dimensions)));
    running.pop_front();
  };
  for (const std::string& text : texts) {
    const GenerationRequest request = impl_->vector_request(text);
    auto handle = lease->submit(request, {});
    // The queue is full, of these and of others.
    while (!handle.ok() && handle.status().code() == Code::kResourceExhausted && !running.empty()) {
      take_first();
      handle = lease->submit(request, {});
    }
    running.push_back(or_throw(std::move(handle)));
  }
  while (!running.empty()) take_first();
  return vectors;
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
      self.take_part(event);
      if (const auto* end = std::get_if<AnswerEnd>(&event)) self.finish(end->how);
    }
  }
  return !text.empty();
}

// Thoughts and calls, which the summary has.
void Stream::Impl::take_part(const AnswerEvent& event) {
  if (const auto* thought = std::get_if<AnswerReasoning>(&event)) {
    summary.reasoning += thought->text;
  } else if (const auto* call = std::get_if<AnswerCallBegin>(&event)) {
    summary.tool_calls.push_back({std::string(call->id), std::string(call->name), ""});
  } else if (const auto* arguments = std::get_if<AnswerArguments>(&event)) {
    summary.tool_calls.back().arguments += arguments->text;
  }
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
