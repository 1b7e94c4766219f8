#include "server/api/completion_request.h"

#include <algorithm>
#include <utility>

#include "server/api/fields.h"
#include "server/api/form_fields.h"

namespace skein::api {

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
  request.prompts = read_prompts(fields, "prompt", kMaxPrompts);
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
