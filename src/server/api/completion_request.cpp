#include "server/api/completion_request.h"

#include <algorithm>
#include <utility>

#include "server/api/fields.h"
#include "server/api/form_fields.h"

namespace skein::api {
namespace {

constexpr std::string_view kPromptForms =
    "A string, a list of strings, a list of token ids or a list of such lists is expected here.";

void read_prompt_ids(const json::Value& list, const std::string& path, Problem& problem,
                     std::vector<Prompt>& prompts) {
  if (list.empty()) {
    problem = invalid_field(path, "A prompt needs at least one token.");
    return;
  }
  prompts.emplace_back(read_token_ids(list, path, problem));
}

void read_prompts(const Fields& fields, std::vector<Prompt>& prompts) {
  const json::Value* prompt = fields.find("prompt");
  if (prompt == nullptr) return fields.missing("prompt");
  if (prompt->is_string()) {
    prompts.emplace_back(prompt->get<std::string>());
    return;
  }
  if (!prompt->is_array() || prompt->empty())
    return fields.fail("prompt", std::string(kPromptForms));
  if (prompt->front().is_number()) {
    return read_prompt_ids(*prompt, "prompt", fields.problem(), prompts);
  }
  fields.for_each("prompt", kMaxPrompts, [&](const json::Value& item, const std::string& path) {
    const bool alike = item.type() == prompt->front().type();
    if (alike && item.is_string()) {
      prompts.emplace_back(item.get<std::string>());
    } else if (alike && item.is_array()) {
      read_prompt_ids(item, path, fields.problem(), prompts);
    } else {
      fields.problem() = invalid_field(path, std::string(kPromptForms));
    }
  });
}

}  // namespace

Parsed<CompletionRequest> parse_completion_request(std::string_view body) {
  auto parsed = parse_body(body);
  if (!parsed.ok()) return parsed.error();
  return read_completion_request(*parsed);
}

Parsed<CompletionRequest> read_completion_request(const json::Value& body) {
  Problem problem;
  const Fields fields(body, "", problem);
  CompletionRequest request;
  AnswerOptions& options = request.options;
  read_answer_options(fields, options);
  read_prompts(fields, request.prompts);
  options.max_tokens = read_max_tokens(fields, "max_tokens").value_or(kDefaultCompletionTokens);
  if (fields.has("min_tokens") && options.sampling.min_tokens > *options.max_tokens) {
    fields.fail("min_tokens", "It is more than max_tokens.");
  }
  read_form(fields, options);
  if (fields.boolean("describe_form").value_or(false)) {
    fields.fail("describe_form", "It needs a conversation.");
  }
  request.echo = fields.boolean("echo").value_or(false);
  if (const auto top = fields.integer("logprobs", 0, kMaxTopLogprobs)) {
    options.sampling.logprobs = true;
    options.sampling.top_logprobs = static_cast<uint32_t>(*top);
  }
  if (request.prompts.size() * options.n > kMaxCompletions) {
    fields.fail("n", fmt::format("{} prompts with n = {} are asked for; at most {} answers are "
                                 "allowed.",
                                 request.prompts.size(), options.n, kMaxCompletions));
  }
  const std::string suffix = fields.string("suffix").value_or("");
  if (!problem && !suffix.empty()) problem = not_supported("A suffix", "suffix");
  if (problem) return *problem;
  return request;
}

}  // namespace skein::api
