// /tokenize, /detokenize, /apply-template, /v1/messages/count_tokens, /v1/embeddings.
#include <utility>

#include "engine/prompt.h"
#include "server/answer/generate.h"
#include "server/api/answers.h"
#include "server/api/text_requests.h"
#include "server/endpoints/endpoints.h"
#include "server/endpoints/reply.h"

namespace skein {
namespace {

// What a client is told when its text cannot be turned into something else.
api::Error text_error(const Status& status, std::string_view field) {
  const bool callers = status.code() == Code::kInvalidArgument ||
                       status.code() == Code::kOutOfRange || status.code() == Code::kNotFound;
  return callers ? api::invalid_field(std::string(field), status.message())
                 : api::from_status(status);
}

void send_result(const Call& call, const http::Responder& responder, std::string_view field,
                 Result<std::string> result) {
  if (!result.ok()) return send_error(call, responder, text_error(result.status(), field));
  send_json(responder, std::move(*result));
}

const Tokenizer& tokenizer_of(const ServedModel& model) {
  return model.model().tokenizer()->tokenizer;
}

Result<std::vector<TokenId>> encode_chat(const ServedModel& model, const api::ChatRequest& chat) {
  SKEIN_ASSIGN(const jinja::Rendered prompt, render_chat(model, chat));
  return encode_prompt(tokenizer_of(model), prompt);
}

Result<std::string> tokenize(const ServedModel& model, const api::TokenizeRequest& request) {
  const Tokenizer& tokenizer = tokenizer_of(model);
  const auto encoded = request.chat
                           ? encode_chat(model, *request.chat)
                           : tokenizer.encode(request.text, {.add_special = request.add_special});
  SKEIN_ASSIGN(const std::vector<TokenId> tokens, encoded);
  std::vector<std::string> pieces;
  if (request.with_pieces) {
    pieces.reserve(tokens.size());
    for (const TokenId token : tokens) pieces.emplace_back(tokenizer.piece(token));
  }
  return api::tokenize_answer(tokens, model.max_request_tokens(),
                              request.with_pieces ? &pieces : nullptr);
}

Result<std::string> detokenize(const ServedModel& model, const api::DetokenizeRequest& request) {
  const Tokenizer& tokenizer = tokenizer_of(model);
  for (const TokenId token : request.tokens) {
    if (!tokenizer.contains(token)) {
      return invalid_argument("The vocabulary has {} tokens; {} is not one of them.",
                              tokenizer.vocab_size(), token);
    }
  }
  SKEIN_ASSIGN(const std::string text, tokenizer.decode(request.tokens, {.skip_special = false}));
  return api::detokenize_answer(text);
}

Result<std::string> apply_template(const ServedModel& model,
                                   const api::ApplyTemplateRequest& request) {
  SKEIN_ASSIGN(const jinja::Rendered prompt, render_chat(model, request.chat));
  return api::apply_template_answer(prompt.text());
}

Result<std::string> count_tokens(const ServedModel& model, const api::ChatRequest& request) {
  SKEIN_ASSIGN(const std::vector<TokenId> tokens, encode_chat(model, request));
  return api::count_tokens_answer(tokens.size());
}

// What a request needs of the model's files.
struct Needs {
  std::string model;
  bool tokenizer = true;
  bool chat = false;
};

Needs needs_of(const api::TokenizeRequest& request) {
  return {request.model, true, request.chat.has_value()};
}
Needs needs_of(const api::DetokenizeRequest& request) {
  return {request.model, true, false};
}
Needs needs_of(const api::ApplyTemplateRequest& request) {
  return {request.chat.generation.model, false, true};
}
Needs needs_of(const api::ChatRequest& request) {
  return {request.generation.model, true, true};
}

// An endpoint that parses its body, takes the model that it names, and answers with what `answer`
// makes of both. A failure of `answer` is about `field` of the body.
template <class Parse, class Answer>
EndpointFunction text_endpoint(ServerContext& context, Parse parse, Answer answer,
                               const char* field) {
  return [&context, parse, answer, field](Call call, const http::Responder& responder) {
    auto request = parse(call.request.body);
    if (!request.ok()) return send_error(call, responder, request.error());
    call.request = {};  // its text is in the parsed request; the call may wait for a model
    const Needs needs = needs_of(*request);
    with_model(context, call, needs.model, responder,
               [=, parsed = std::move(*request)](ServedModel& served) {
                 if (const auto missing = find_missing(served, needs.tokenizer, needs.chat)) {
                   return send_error(call, responder, *missing);
                 }
                 send_result(call, responder, field, answer(served, parsed));
               });
  };
}

}  // namespace

void bind_text(Router& router, ServerContext& context) {
  router.bind(Endpoint::kTokenize,
              text_endpoint(context, api::parse_tokenize_request, tokenize, "prompt"));
  router.bind(Endpoint::kDetokenize,
              text_endpoint(context, api::parse_detokenize_request, detokenize, "tokens"));
  router.bind(Endpoint::kApplyTemplate, text_endpoint(context, api::parse_apply_template_request,
                                                      apply_template, "messages"));
  const auto parse_count = [](std::string_view body) {
    return api::parse_messages_request(body, true);
  };
  router.bind(Endpoint::kCountTokens,
              text_endpoint(context, parse_count, count_tokens, "messages"));
  router.bind(
      Endpoint::kEmbeddings, [&context](const Call& call, const http::Responder& responder) {
        auto request = api::parse_embeddings_request(call.request.body);
        if (!request.ok()) return send_error(call, responder, request.error());
        const auto model = model_for(context, *call.principal, request->model);
        send_error(call, responder,
                   model.ok() ? api::not_supported("Embedding with this model") : model.error());
      });
}

}  // namespace skein
