// /tokenize, /detokenize, /apply-template, /v1/messages/count_tokens, /v1/responses/input_tokens,
// and the two that routers ask for the tokens of a request: .../render.
//
// Each is a request of its key's minute, and the tokens of its text are tokens of that minute: they
// cost the workers as much as a prompt does.
#include <algorithm>
#include <utility>

#include "server/answer/answer_account.h"
#include "server/answer/prompts.h"
#include "server/api/completion_request.h"
#include "server/api/text_requests.h"
#include "server/endpoints/continued.h"
#include "server/endpoints/reply.h"

namespace skein::endpoints {
namespace {

// Tells the client why its text cannot be turned into something else.
api::Error text_error(const Status& status, std::string_view field) {
  const bool callers = status.code() == Code::kInvalidArgument ||
                       status.code() == Code::kOutOfRange || status.code() == Code::kNotFound;
  return callers ? api::invalid_field(std::string(field), status.message())
                 : api::from_status(status);
}

// The answer to a request about a text.
struct TextAnswer {
  std::string body;
  uint64_t tokens = 0;  // of the text, for the key's account
};

constexpr uint64_t kBytesPerToken = 4;  // of a text that is not tokenized
// Taken at the door, where nobody knows yet how many there will be.
constexpr uint64_t kReservedTokens = 1;

// False: the key's minute is used up, and the client knows.
bool enter(ServerContext& context, const Call& call, const http::Responder& responder) {
  const Admission admission = context.limiter.admit(*call.principal, kReservedTokens);
  if (admission.admitted()) return true;
  context.metrics.on_rejected("", Rejection::kRateLimit);
  send_error(call, responder, rate_limit_error(admission));
  return false;
}

// A model that has what the request needs, and its prompts.
struct TextModel {
  const ServedModel& served;
  const PromptBuilder prompts;
  const Tokenizer& tokenizer() const { return served.model().tokenizer()->tokenizer; }
};

Result<TextAnswer> tokens_of(const TextModel& model, const api::TokenizeRequest& request) {
  const auto encoded = request.chat ? model.prompts.encode_chat(request.chat->conversation())
                                    : model.prompts.encode_text(request.text, request.add_special);
  SKEIN_ASSIGN(const std::vector<TokenId> tokens, encoded);
  std::vector<std::string> pieces;
  if (request.with_pieces) {
    pieces.reserve(tokens.size());
    for (const TokenId token : tokens) pieces.emplace_back(model.tokenizer().piece(token));
  }
  return TextAnswer{api::tokenize_answer(tokens, model.served.max_request_tokens(),
                                         request.with_pieces ? &pieces : nullptr),
                    tokens.size()};
}

Result<TextAnswer> text_of(const TextModel& model, const api::DetokenizeRequest& request) {
  SKEIN_TRY(model.prompts.check_count(request.tokens.size()));
  const Tokenizer& tokenizer = model.tokenizer();
  for (const TokenId token : request.tokens) {
    if (!tokenizer.contains(token)) {
      return invalid_argument("The vocabulary has {} tokens; {} is not one of them.",
                              tokenizer.vocab_size(), token);
    }
  }
  SKEIN_ASSIGN(const std::string text, tokenizer.decode(request.tokens, {.skip_special = false}));
  return TextAnswer{api::detokenize_answer(text), request.tokens.size()};
}

Result<TextAnswer> prompt_of(const TextModel& model, const api::ApplyTemplateRequest& request) {
  SKEIN_ASSIGN(const jinja::Rendered prompt, model.prompts.render(request.chat.conversation()));
  const std::string text = prompt.text();
  return TextAnswer{api::apply_template_answer(text), text.size() / kBytesPerToken};
}

template <std::string (*kBody)(uint64_t tokens)>
Result<TextAnswer> count_of(const TextModel& model, const api::ChatRequest& request) {
  SKEIN_ASSIGN(const std::vector<TokenId> tokens,
               model.prompts.encode_chat(request.conversation()));
  return TextAnswer{kBody(tokens.size()), tokens.size()};
}

Result<TextAnswer> rendered_chat(const TextModel& model, const api::ChatRequest& request) {
  SKEIN_ASSIGN(const std::vector<TokenId> tokens,
               model.prompts.encode_chat(request.conversation()));
  return TextAnswer{api::rendered_answer(tokens), tokens.size()};
}

// A list, for there may be several prompts.
Result<TextAnswer> rendered_texts(const TextModel& model, const api::CompletionRequest& request) {
  TextAnswer answer{"[", 0};
  for (const api::Prompt& prompt : request.prompts) {
    std::vector<TokenId> tokens;
    if (const auto* ids = std::get_if<std::vector<TokenId>>(&prompt)) {
      SKEIN_TRY(model.prompts.check_count(ids->size()));
      tokens = *ids;
    } else {
      SKEIN_ASSIGN(tokens, model.prompts.encode_text(std::get<std::string>(prompt)));
    }
    if (answer.body.size() > 1) answer.body.push_back(',');
    answer.body += api::rendered_answer(tokens);
    answer.tokens += tokens.size();
  }
  answer.body.push_back(']');
  return answer;
}

// The parts of a model that a request needs.
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
  return {request.chat.options.model, false, true};
}
Needs needs_of(const api::CompletionRequest& request) {
  return {request.options.model, true, false};
}
Needs needs_of(const api::ChatRequest& request) {
  return {request.options.model, true, true};
}

// Of how many prompts each may be as long as a prompt can be.
template <class Request>
uint64_t prompts_in(const Request&) {
  return 1;
}
uint64_t prompts_in(const api::CompletionRequest& request) {
  return request.prompts.size();
}

// Takes the model that the request names, and answers with what `answer` makes of both. A failure
// of `answer` is about `field` of the body.
template <class Request>
void answer_parsed(ServerContext& context, Call& call, const http::Responder& responder,
                   api::Parsed<Request>&& request,
                   Result<TextAnswer> (*answer)(const TextModel& model, const Request& request),
                   const char* field) {
  if (!request.ok()) return send_error(call, responder, request.error());
  // Its text is in the parsed request; the call may wait for a model.
  const uint64_t body_bytes = call.request.body.size();
  auto memory = std::move(call.request.memory);
  call.request = {};
  call.request.memory = std::move(memory);
  const Needs needs = needs_of(*request);
  with_model(
      context, call, needs.model, responder,
      [=, &context, parsed = std::move(*request)](ServedModel& served) {
        if (const auto missing = find_missing(served, needs.tokenizer, needs.chat)) {
          return send_error(call, responder, *missing);
        }
        Result<TextAnswer> made = answer(TextModel{served, prompts_of(context, served)}, parsed);
        // What fails was worked on, too: as far as its text goes, and its prompts.
        const uint64_t tokens = made.ok()
                                    ? made->tokens
                                    : std::min(body_bytes / kBytesPerToken,
                                               prompts_in(parsed) * served.max_request_tokens());
        context.limiter.settle(*call.principal, kReservedTokens, tokens);
        if (!made.ok()) return send_error(call, responder, text_error(made.status(), field));
        send_json(responder, std::move(made->body));
      });
}

template <class Request>
void answer_text(ServerContext& context, Call& call, const http::Responder& responder,
                 api::Parsed<Request> (*parse)(std::string_view body),
                 Result<TextAnswer> (*answer)(const TextModel& model, const Request& request),
                 const char* field) {
  if (!enter(context, call, responder)) return;
  answer_parsed(context, call, responder, parse(call.request.body), answer, field);
}

api::Parsed<api::ChatRequest> parse_count(std::string_view body) {
  return api::parse_messages_request(body, true);
}

}  // namespace

void tokenize(ServerContext& context, Call& call, const http::Responder& responder) {
  answer_text(context, call, responder, api::parse_tokenize_request, tokens_of, "prompt");
}

void detokenize(ServerContext& context, Call& call, const http::Responder& responder) {
  answer_text(context, call, responder, api::parse_detokenize_request, text_of, "tokens");
}

void apply_template(ServerContext& context, Call& call, const http::Responder& responder) {
  answer_text(context, call, responder, api::parse_apply_template_request, prompt_of, "messages");
}

void count_tokens(ServerContext& context, Call& call, const http::Responder& responder) {
  answer_text(context, call, responder, parse_count, count_of<api::count_tokens_answer>,
              "messages");
}

void render_chat(ServerContext& context, Call& call, const http::Responder& responder) {
  answer_text(context, call, responder, api::parse_chat_request, rendered_chat, "messages");
}

void render_completion(ServerContext& context, Call& call, const http::Responder& responder) {
  answer_text(context, call, responder, api::parse_completion_request, rendered_texts, "prompt");
}

void input_tokens(ServerContext& context, Call& call, const http::Responder& responder) {
  if (!enter(context, call, responder)) return;
  with_conversation(context, call, responder, true,
                    [&context, responder](Call& whole, api::Parsed<api::ChatRequest>&& request) {
                      answer_parsed(context, whole, responder, std::move(request),
                                    count_of<api::input_tokens_answer>, "input");
                    });
}

}  // namespace skein::endpoints
