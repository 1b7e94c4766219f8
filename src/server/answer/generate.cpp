#include "server/answer/generate.h"

#include <algorithm>
#include <charconv>
#include <utility>

#include "base/log.h"
#include "server/answer/answer_job.h"

namespace skein {
namespace {

using Prompts = api::Parsed<std::vector<PromptTokens>>;

// Why a text could not become ids; one that is too long names its field.
api::Error encode_error(const Status& status, const char* field) {
  api::Error error = api::from_status(status);
  if (status.code() == Code::kOutOfRange) error.param = field;
  return error;
}

Prompts chat_prompt(const ServerContext& context, const ServedModel& served,
                    const api::ChatRequest& request) {
  if (auto missing = find_missing(served, true, true)) return std::move(*missing);
  const PromptBuilder prompts = prompts_of(context, served);
  Result<jinja::Rendered> prompt = prompts.render(request.conversation());
  if (!prompt.ok()) {
    return api::invalid_field(
        "messages", "The model's chat template refuses this conversation: " + prompt.message());
  }
  auto ids = prompts.encode(*prompt);
  if (!ids.ok()) return encode_error(ids.status(), "messages");
  return std::vector<PromptTokens>{{std::move(*ids), {}}};
}

api::Parsed<PromptTokens> ids_prompt(const ServedModel& served, const std::vector<TokenId>& ids,
                                     bool echo, size_t index) {
  for (const TokenId id : ids) {
    if (id >= 0 && static_cast<uint32_t>(id) < served.vocab()) continue;
    return api::invalid_field(
        "prompt", fmt::format("Prompt {} has the token id {}; the vocabulary has {}.", index, id,
                              served.vocab()));
  }
  PromptTokens tokens{ids, {}};
  if (echo) {
    auto text = served.model().tokenizer()->tokenizer.decode(ids);
    if (!text.ok()) return api::from_status(text.status());
    tokens.echo = std::move(*text);
  }
  return tokens;
}

api::Parsed<PromptTokens> text_prompt(const PromptBuilder& prompts, const std::string& text,
                                      bool echo) {
  auto ids = prompts.encode_text(text);
  if (!ids.ok()) return encode_error(ids.status(), "prompt");
  if (ids->empty()) {
    return api::invalid_field("prompt",
                              "The prompt is empty, and this model begins no text by "
                              "itself.");
  }
  return PromptTokens{std::move(*ids), echo ? text : std::string()};
}

Prompts completion_prompts(const ServerContext& context, const ServedModel& served,
                           const api::CompletionRequest& request) {
  if (auto missing = find_missing(served, true, false)) return std::move(*missing);
  std::vector<PromptTokens> prompts;
  for (size_t i = 0; i < request.prompts.size(); ++i) {
    const auto* ids = std::get_if<std::vector<TokenId>>(&request.prompts[i]);
    auto prompt = ids != nullptr
                      ? ids_prompt(served, *ids, request.echo, i)
                      : text_prompt(prompts_of(context, served),
                                    std::get<std::string>(request.prompts[i]), request.echo);
    if (!prompt.ok()) return prompt.error();
    prompts.push_back(std::move(*prompt));
  }
  return prompts;
}

std::shared_ptr<AnswerJob> chat_job(ServerContext& context, Caller caller, AnswerForm form,
                                    api::ChatRequest request) {
  AnswerSpec spec;
  spec.form = form;
  spec.generation = request.generation;
  spec.make_prompts = [&context, request = std::move(request)](const ServedModel& served) {
    return chat_prompt(context, served, request);
  };
  return std::make_shared<AnswerJob>(context, std::move(caller), std::move(spec));
}

std::shared_ptr<AnswerJob> completion_job(ServerContext& context, Caller caller,
                                          api::CompletionRequest request) {
  AnswerSpec spec;
  spec.form = AnswerForm::kCompletion;
  spec.generation = request.generation;
  spec.make_prompts = [&context, request = std::move(request)](const ServedModel& served) {
    return completion_prompts(context, served, request);
  };
  return std::make_shared<AnswerJob>(context, std::move(caller), std::move(spec));
}

}  // namespace

Caller caller_of(const Call& call) {
  Caller caller;
  caller.principal = call.principal;
  caller.priority = call.priority;
  caller.route = call.route->pattern;
  caller.request_id = call.request.request_id;
  caller.memory = call.request.memory;
  if (const std::string* header = call.request.head.header("x-request-timeout-ms")) {
    int64_t ms = 0;
    const auto [end, error] = std::from_chars(header->data(), header->data() + header->size(), ms);
    constexpr int64_t kDayMs = int64_t{24} * 3600 * 1000;
    const bool whole = error == std::errc() && end == header->data() + header->size();
    if (whole && ms > 0 && ms <= kDayMs) caller.timeout_us = ms * kUsPerMs;
  }
  return caller;
}

std::optional<api::Error> find_missing(const ServedModel& served, bool tokenizer, bool chat) {
  const LoadedModel& model = served.model();
  if (tokenizer && model.tokenizer() == nullptr) {
    log_warning("model {}: {}", served.id(), model.tokenizer_status().message());
    return api::not_supported("Text, with a model whose tokenizer cannot be used,");
  }
  if (chat && model.chat_template() == nullptr) {
    log_warning("model {}: {}", served.id(), model.chat_template_status().message());
    return api::not_supported("A conversation, with a model whose chat template cannot be used,");
  }
  return std::nullopt;
}

PromptBuilder prompts_of(const ServerContext& context, const ServedModel& served) {
  return PromptBuilder(served.model(), served.max_request_tokens(), context.clock);
}

api::Error rate_limit_error(const Admission& admission) {
  if (admission.never) return api::rate_limit_too_small(admission.wanted, admission.per_minute);
  constexpr TimeUs kSecond = kUsPerSecond;
  const TimeUs seconds = (admission.retry_after_us + kSecond - 1) / kSecond;
  return api::rate_limited(static_cast<uint64_t>(std::max<TimeUs>(1, seconds)));
}

api::Parsed<std::string> model_for(const ServerContext& context, const Principal& who,
                                   const std::string& wanted) {
  const std::string& id = wanted.empty() ? context.default_model : wanted;
  if (!context.models.has(id)) return api::model_not_found(id);
  if (!who.may_use(id)) return api::forbidden("This key may not use this model.");
  return id;
}

void generate_chat(ServerContext& context, Caller caller, api::ChatRequest request,
                   http::Responder responder) {
  chat_job(context, std::move(caller), AnswerForm::kChat, std::move(request))
      ->begin(std::move(responder));
}

void generate_message(ServerContext& context, Caller caller, api::ChatRequest request,
                      http::Responder responder) {
  chat_job(context, std::move(caller), AnswerForm::kMessage, std::move(request))
      ->begin(std::move(responder));
}

void generate_completion(ServerContext& context, Caller caller, api::CompletionRequest request,
                         http::Responder responder) {
  completion_job(context, std::move(caller), std::move(request))->begin(std::move(responder));
}

std::shared_ptr<LiveRequest> generate_chat(ServerContext& context, Caller caller,
                                           api::ChatRequest request, LineDone done) {
  const auto job = chat_job(context, std::move(caller), AnswerForm::kChat, std::move(request));
  job->begin(std::move(done));
  return job;
}

std::shared_ptr<LiveRequest> generate_completion(ServerContext& context, Caller caller,
                                                 api::CompletionRequest request, LineDone done) {
  const auto job = completion_job(context, std::move(caller), std::move(request));
  job->begin(std::move(done));
  return job;
}

}  // namespace skein
