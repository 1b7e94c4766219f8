#include "server/answer/prompts.h"

#include <algorithm>
#include <utility>

#include "base/log.h"
#include "base/rng.h"
#include "generate/answer_plan.h"
#include "server/api/form_fields.h"

namespace skein {
namespace {

using Prompts = api::Parsed<std::vector<PromptTokens>>;

// Why a text could not become ids; one that is too long names its field.
api::Error encode_error(const Status& status, std::string_view field) {
  api::Error error = api::from_status(status);
  if (status.code() == Code::kOutOfRange) error.param = field;
  return error;
}

Prompts chat_prompt(const ServerContext& context, const ServedModel& served,
                    const api::ChatRequest& request, std::string_view field) {
  if (auto missing = find_missing(served, true, true)) return std::move(*missing);
  const PromptBuilder prompts = prompts_of(context, served);
  Result<jinja::Rendered> prompt = prompts.render(request.conversation());
  if (!prompt.ok()) {
    return api::invalid_field(
        std::string(field),
        "The model's chat template refuses this conversation: " + prompt.message());
  }
  auto ids = prompts.encode(*prompt);
  if (!ids.ok()) return encode_error(ids.status(), field);
  const bool opens = request.add_generation_prompt && prompts.opens_thought(*prompt);
  return std::vector<PromptTokens>{{std::move(*ids), {}, opens}};
}

api::Parsed<PromptTokens> ids_prompt(const ServedModel& served, const std::vector<TokenId>& ids,
                                     bool echo, size_t index) {
  for (const TokenId id : ids) {
    if (id >= 0 && static_cast<uint32_t>(id) < served.vocab()) continue;
    return api::invalid_field(
        "prompt", fmt::format("Prompt {} has the token id {}; the vocabulary has {}.", index, id,
                              served.vocab()));
  }
  PromptTokens tokens{.ids = ids};
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
  return PromptTokens{.ids = std::move(*ids), .echo = echo ? text : std::string()};
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
                     const AnswerRequest& request, std::string_view field) {
  if (served.model().spec().encoder) {
    return api::not_supported(
        "Writing text with this model, an encoder, whose vectors /v1/embeddings or /v1/rerank "
        "give,",
        "model");
  }
  if (const auto* chat = std::get_if<api::ChatRequest>(&request)) {
    return chat_prompt(context, served, *chat, field);
  }
  return completion_prompts(context, served, std::get<api::CompletionRequest>(request));
}

namespace {

AnswerTerms terms_of(const api::ChatRequest& request, const api::AnswerOptions& wanted) {
  using Choice = api::ToolChoice;
  AnswerTerms terms;
  terms.tools = dialog::tools_of(request.tools);
  for (dialog::Tool& tool : terms.tools) {
    const auto& custom = request.custom_tools;
    const auto found = std::find(custom.begin(), custom.end(), tool.name);
    if (found == custom.end()) continue;
    const auto& grammar = request.custom_grammars[static_cast<size_t>(found - custom.begin())];
    tool.lark = grammar.lark;
    tool.regex = grammar.regex;
  }
  terms.places = request.tool_places;
  if (request.tool_choice == Choice::kNone) terms.choice = dialog::ToolChoice::kNone;
  if (request.tool_choice > Choice::kNone) terms.choice = dialog::ToolChoice::kRequired;
  terms.callable = request.tool_names;
  terms.parallel = request.parallel_tool_calls && request.tool_choice != Choice::kNamed;
  if (wanted.form) terms.content = wanted.form->spec;
  const auto thinks = request.template_kwargs.find("enable_thinking");
  terms.may_think = thinks == request.template_kwargs.end() || *thinks != false;
  terms.parses_reasoning = request.parses_reasoning;
  terms.limits_thought = request.reasoning_budget.has_value();
  return terms;
}

// Forms cannot be had now, or not at all with this model.
std::optional<api::Error> prepare_forms(const ServedModel& served, const std::string& field,
                                        uint64_t tenant) {
  const Status status = served.model().forms()->prepare(tenant);
  if (status.ok()) return std::nullopt;
  log_warning("model {}: {}", served.id(), status.message());
  if (status.code() == Code::kResourceExhausted) return api::overloaded(1);
  const char* what = field == "tools"
                         ? "Calling tools, with a model whose vocabulary forms cannot be made for,"
                         : "A form, with a model whose vocabulary forms cannot be made for,";
  return api::not_supported(what, field);
}

// The field of a tool's grammar, where that is what is refused; else empty.
std::string grammar_field(const api::ChatRequest& request, const std::string& where) {
  for (size_t i = 0; i < request.tool_places.size(); ++i) {
    if (where != fmt::format("/{}", request.tool_places[i])) continue;
    const auto& custom = request.custom_tools;
    const auto name = request.tools[i]["function"]["name"].get<std::string>();
    const auto found = std::find(custom.begin(), custom.end(), name);
    if (found == custom.end()) return {};
    return request.custom_grammars[static_cast<size_t>(found - custom.begin())].field;
  }
  return {};
}

std::optional<api::Error> compile_form(const ServedModel& served, const AnswerPlan& plan,
                                       const api::ChatRequest& request,
                                       const std::optional<api::AskedForm>& asked, uint64_t tenant,
                                       AnswerShape& shape) {
  shape.form_field = plan.calls() ? "tools" : asked ? asked->field : "thinking";
  if (auto error = prepare_forms(served, shape.form_field, tenant)) {
    return plan.form_is_optional() ? std::nullopt : std::move(error);
  }
  std::optional<AnswerPlan::Refusal> refusal;
  shape.form = plan.compile(refusal, tenant);
  if (!refusal) return std::nullopt;
  if (refusal->of_content) {
    return api::form_refused(refusal->error, asked ? asked->field : shape.form_field);
  }
  const std::string field = grammar_field(request, refusal->error.where);
  if (field.empty()) return api::form_refused(refusal->error, "tools");
  refusal->error.where.clear();
  return api::form_refused(refusal->error, field);
}

}  // namespace

api::Parsed<AnswerShape> make_shape(const ServedModel& served, const AnswerRequest& request,
                                    const api::AnswerOptions& wanted, const PromptTokens& prompt,
                                    uint64_t tenant) {
  AnswerShape shape;
  const auto* chat = std::get_if<api::ChatRequest>(&request);
  if (chat == nullptr) {
    if (!wanted.form) return shape;
    shape.form_field = wanted.form->field;
    if (auto error = prepare_forms(served, shape.form_field, tenant)) return std::move(*error);
    auto form = served.model().forms()->compile(wanted.form->spec, tenant);
    if (!form.ok()) return api::form_refused(form.error(), shape.form_field);
    shape.form = std::move(form).value();
    return shape;
  }
  const dialog::ChatFormat& format = *served.model().chat_format();
  const AnswerPlan plan(served.model(), terms_of(*chat, wanted), prompt.opens_thought);
  if (plan.has_form()) {
    auto error = compile_form(served, plan, *chat, wanted.form, tenant, shape);
    if (error) return std::move(*error);
  }
  shape.thought_budget = chat->reasoning_budget;
  if (const TokenId token = plan.barred(); token != kNoToken) shape.banned.push_back(token);
  if (plan.calls()) shape.call_format = format.calls.name;
  shape.syntax = plan.syntax();
  shape.in_reasoning = plan.in_reasoning();
  shape.id_style = chat->call_ids;
  if (format.habits.nine_character_ids && shape.id_style == dialog::IdStyle::kOpenAi) {
    shape.id_style = dialog::IdStyle::kNine;
  }
  shape.custom_tools = chat->custom_tools;
  return shape;
}

ReadOptions reading(const AnswerShape& shape, const api::AnswerOptions& wanted,
                    const PromptTokens& prompt, uint64_t seed) {
  ReadOptions options{
      .decode = {.skip_special = wanted.skip_special_tokens, .continuation = wanted.goes_on},
      .stops = wanted.stop,
      .prefix = prompt.echo,
      .syntax = shape.syntax};
  if (!options.syntax) return options;
  options.in_reasoning = shape.in_reasoning;
  options.id_style = shape.id_style;
  options.custom_tools = shape.custom_tools;
  options.call_seed = seed;
  for (const TokenId id : prompt.ids) {
    options.call_seed = mix64(options.call_seed ^ static_cast<uint32_t>(id));
  }
  return options;
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
  for (const TokenId id : sampling.allowed) {
    if (static_cast<uint32_t>(id) >= vocab) return unknown("allowed_token_ids", id);
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
