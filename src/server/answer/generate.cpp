#include "server/answer/generate.h"

#include <algorithm>
#include <charconv>
#include <utility>

#include "base/check.h"
#include "base/log.h"
#include "engine/prompt.h"
#include "server/answer/answer_job.h"

namespace skein {
namespace {

using Prompts = api::Parsed<std::vector<PromptTokens>>;

// Tokens beyond the context up to which a text is still counted, so that the client is told how
// many it has.
constexpr uint64_t kSlackTokens = 1024;

api::Error too_long(const Status& status, const char* field) {
  api::Error error = api::from_status(status);
  error.param = field;
  return error;
}

Prompts chat_prompt(const ServedModel& served, const api::ChatRequest& request) {
  if (auto missing = find_missing(served, true, true)) return std::move(*missing);
  Result<jinja::Rendered> prompt = render_chat(served, request);
  if (!prompt.ok()) {
    return api::invalid_field(
        "messages", "The model's chat template refuses this conversation: " + prompt.message());
  }
  if (const Status size = check_text_bytes(served, *prompt); !size.ok()) {
    return too_long(size, "messages");
  }
  auto ids = encode_prompt(served.model().tokenizer()->tokenizer, *prompt);
  if (!ids.ok()) return api::from_status(ids.status());
  return std::vector<PromptTokens>{{std::move(*ids), {}}};
}

api::Parsed<PromptTokens> completion_prompt(const ServedModel& served, const api::Prompt& prompt,
                                            bool echo, size_t index) {
  const Tokenizer& tokenizer = served.model().tokenizer()->tokenizer;
  PromptTokens tokens;
  if (const auto* ids = std::get_if<std::vector<TokenId>>(&prompt)) {
    for (const TokenId id : *ids) {
      if (id < 0 || static_cast<uint32_t>(id) >= served.vocab()) {
        return api::invalid_field("prompt", "Prompt " + std::to_string(index) +
                                                " has the token id " + std::to_string(id) +
                                                "; the vocabulary has " +
                                                std::to_string(served.vocab()) + ".");
      }
    }
    tokens.ids = *ids;
    if (echo) {
      auto text = tokenizer.decode(*ids);
      if (!text.ok()) return api::from_status(text.status());
      tokens.echo = std::move(*text);
    }
    return tokens;
  }
  const std::string& text = std::get<std::string>(prompt);
  if (const Status size = check_text_bytes(served, text.size()); !size.ok()) {
    return too_long(size, "prompt");
  }
  auto ids = tokenizer.encode(text, {.add_special = true});
  if (!ids.ok()) return api::from_status(ids.status());
  tokens.ids = std::move(*ids);
  if (echo) tokens.echo = text;
  if (tokens.ids.empty()) {
    return api::invalid_field("prompt",
                              "The prompt is empty, and this model begins no text by "
                              "itself.");
  }
  return tokens;
}

Prompts completion_prompts(const ServedModel& served, const api::CompletionRequest& request) {
  if (auto missing = find_missing(served, true, false)) return std::move(*missing);
  std::vector<PromptTokens> prompts;
  for (size_t i = 0; i < request.prompts.size(); ++i) {
    auto prompt = completion_prompt(served, request.prompts[i], request.echo, i);
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
  spec.make_prompts = [request = std::move(request)](const ServedModel& served) {
    return chat_prompt(served, request);
  };
  return std::make_shared<AnswerJob>(context, std::move(caller), std::move(spec));
}

std::shared_ptr<AnswerJob> completion_job(ServerContext& context, Caller caller,
                                          api::CompletionRequest request) {
  AnswerSpec spec;
  spec.form = AnswerForm::kCompletion;
  spec.generation = request.generation;
  spec.make_prompts = [request = std::move(request)](const ServedModel& served) {
    return completion_prompts(served, request);
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

Status check_text_bytes(const ServedModel& served, uint64_t bytes) {
  const uint64_t tokens = served.max_request_tokens() + kSlackTokens;
  const uint64_t limit = tokens * served.model().tokenizer()->tokenizer.longest_piece_bytes();
  if (bytes <= limit) return {};
  return out_of_range("The text has {} bytes; with a context of {} tokens at most {} are taken.",
                      bytes, served.max_request_tokens(), limit);
}

api::Error rate_limit_error(const Admission& admission) {
  if (admission.never) return api::rate_limit_too_small(admission.wanted, admission.per_minute);
  constexpr TimeUs kSecond = kUsPerSecond;
  const TimeUs seconds = (admission.retry_after_us + kSecond - 1) / kSecond;
  return api::rate_limited(static_cast<uint64_t>(std::max<TimeUs>(1, seconds)));
}

Status check_token_count(const ServedModel& served, uint64_t tokens) {
  const uint64_t limit = served.max_request_tokens() + kSlackTokens;
  if (tokens <= limit) return {};
  return out_of_range("There are {} tokens; with a context of {} at most {} are taken.", tokens,
                      served.max_request_tokens(), limit);
}

Status check_text_bytes(const ServedModel& served, const jinja::Rendered& prompt) {
  uint64_t bytes = 0;
  for (const auto& segment : prompt.segments) bytes += segment.text.size();
  return check_text_bytes(served, bytes);
}

Result<jinja::Rendered> render_chat(const ServedModel& served, const api::ChatRequest& request) {
  const ChatTemplate* chat = served.model().chat_template();
  SKEIN_CHECK(chat != nullptr, "model {} has no chat template", served.id());
  const SystemClock clock;
  return render_prompt(*chat, request.template_context(), request.continue_final_message, clock);
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
