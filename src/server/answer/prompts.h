// From a parsed request to its model and its prompts, in the words of the API where that fails.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <variant>
#include <vector>

#include "generate/events.h"
#include "generate/prompt.h"
#include "server/api/chat_request.h"
#include "server/api/completion_request.h"
#include "server/context.h"

namespace skein {

using AnswerRequest = std::variant<api::ChatRequest, api::CompletionRequest>;

// One prompt, ready for the model.
struct PromptTokens {
  std::vector<TokenId> ids;
  std::string echo = {};  // goes before the answer
  bool opens_thought = false;
};

// `field`: of the request, for errors about a conversation.
api::Parsed<std::vector<PromptTokens>> make_prompts(const ServerContext& context,
                                                    const ServedModel& served,
                                                    const AnswerRequest& request,
                                                    std::string_view field);

// How an answer is bound and read.
struct AnswerShape {
  std::shared_ptr<const Form> form;  // nullptr: any text
  std::string form_field;            // of the request: what asked for it
  std::optional<uint32_t> thought_budget;
  std::vector<TokenId> banned;  // what begins a call, where none may come
  std::string call_format;      // of the model, where calls may come
  // All choices are read with this, but for the seed of the ids of calls.
  std::shared_ptr<const dialog::AnswerSyntax> syntax;
  bool in_reasoning = false;
  dialog::IdStyle id_style = dialog::IdStyle::kOpenAi;
  std::vector<std::string> custom_tools;
};

// The form is compiled on this thread, on the tenant's account. `wanted` are the request's options.
api::Parsed<AnswerShape> make_shape(const ServedModel& served, const AnswerRequest& request,
                                    const api::AnswerOptions& wanted, const PromptTokens& prompt,
                                    uint64_t tenant);

// How one choice is read. The ids of its calls are a function of the prompt and the seed, so that
// an answer is the same bytes when it is asked for again.
ReadOptions reading(const AnswerShape& shape, const api::AnswerOptions& wanted,
                    const PromptTokens& prompt, uint64_t seed);

// Checks the ids that a request names, which takes the vocabulary.
std::optional<api::Error> check_ids(const SamplingParams& sampling, uint32_t vocab);

PromptBuilder prompts_of(const ServerContext& context, const ServedModel& served);

// Says what the model's files lack for a request: a tokenizer for text, a template too for a
// conversation. The reason is logged, for it may name paths.
std::optional<api::Error> find_missing(const ServedModel& served, bool tokenizer, bool chat);

// The model of a request that may use it: an id that exists and that the key allows.
api::Parsed<std::string> model_for(const ServerContext& context, const Principal& who,
                                   const std::string& wanted);

}  // namespace skein
