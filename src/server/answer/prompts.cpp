#include "server/answer/prompts.h"

#include <utility>

#include "base/log.h"
#include "server/api/form_fields.h"

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

}  // namespace

Prompts make_prompts(const ServerContext& context, const ServedModel& served,
                     const AnswerRequest& request) {
  if (const auto* chat = std::get_if<api::ChatRequest>(&request)) {
    return chat_prompt(context, served, *chat);
  }
  return completion_prompts(context, served, std::get<api::CompletionRequest>(request));
}

api::Parsed<std::shared_ptr<const Form>> make_form(const ServedModel& served,
                                                   const std::optional<api::AskedForm>& asked) {
  if (!asked) return std::shared_ptr<const Form>();
  if (auto missing = find_missing(served, true, false)) return std::move(*missing);
  FormCache& forms = *served.model().forms();
  if (const Status status = forms.prepare(); !status.ok()) {
    log_warning("model {}: {}", served.id(), status.message());
    if (status.code() == Code::kResourceExhausted) return api::overloaded(1);
    return api::not_supported("A form, with a model whose tokens cannot write every text,",
                              asked->field);
  }
  auto form = forms.compile(asked->spec);
  if (!form.ok()) return api::form_refused(form.error(), asked->field);
  return std::move(form).value();
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

std::optional<api::Error> check_ids(const SamplingParams& sampling, uint32_t vocab) {
  const auto unknown = [&](const char* field, TokenId id) {
    return api::invalid_field(
        field, fmt::format("The vocabulary has {} tokens; {} is not one of them.", vocab, id));
  };
  for (const auto& [id, bias] : sampling.logit_bias) {
    if (static_cast<uint32_t>(id) >= vocab) return unknown("logit_bias", id);
  }
  for (const TokenId id : sampling.stop_ids) {
    if (static_cast<uint32_t>(id) >= vocab) return unknown("stop_token_ids", id);
  }
  return std::nullopt;
}

PromptBuilder prompts_of(const ServerContext& context, const ServedModel& served) {
  return PromptBuilder(served.model(), served.max_request_tokens(), context.clock);
}

api::Parsed<std::string> model_for(const ServerContext& context, const Principal& who,
                                   const std::string& wanted) {
  const std::string& id = wanted.empty() ? context.settings.default_model : wanted;
  if (!context.models.has(id)) return api::model_not_found(id);
  if (!who.may_use(id)) return api::forbidden("This key may not use this model.");
  return id;
}

}  // namespace skein
