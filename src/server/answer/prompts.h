// From a parsed request to its model and its prompts, in the words of the API where that fails.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <variant>
#include <vector>

#include "generate/prompt.h"
#include "server/api/chat_request.h"
#include "server/api/completion_request.h"
#include "server/context.h"

namespace skein {

using AnswerRequest = std::variant<api::ChatRequest, api::CompletionRequest>;

// One prompt, ready for the model.
struct PromptTokens {
  std::vector<TokenId> ids;
  std::string echo;  // goes before the answer
};

api::Parsed<std::vector<PromptTokens>> make_prompts(const ServerContext& context,
                                                    const ServedModel& served,
                                                    const AnswerRequest& request);

// The form that the answer must have; nullptr: none was asked for. Compiled on this thread.
api::Parsed<std::shared_ptr<const Form>> make_form(const ServedModel& served,
                                                   const std::optional<api::AskedForm>& asked);

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
