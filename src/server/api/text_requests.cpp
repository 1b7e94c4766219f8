#include "server/api/text_requests.h"

#include "server/api/fields.h"
#include "server/json.h"

namespace skein::api {

Parsed<TokenizeRequest> parse_tokenize_request(std::string_view body) {
  auto parsed = parse_body(body);
  if (!parsed.ok()) return parsed.error();
  Problem problem;
  const Fields fields(*parsed, "", problem);
  TokenizeRequest request;
  request.model = fields.string("model", kMaxNameBytes).value_or("");
  const auto prompt = fields.string("prompt"), content = fields.string("content");
  if (fields.has("messages")) {
    request.chat.emplace();
    request.chat->options.model = request.model;
    read_conversation(fields, *request.chat);
  } else if (prompt || content) {
    request.text = prompt ? *prompt : *content;
    request.add_special = prompt.has_value();
  } else {
    fields.missing("prompt");
  }
  const auto add = fields.boolean("add_special_tokens"), add_too = fields.boolean("add_special");
  if (add || add_too) request.add_special = add.value_or(add_too.value_or(false));
  const bool pieces = fields.boolean("with_pieces").value_or(false);
  request.with_pieces = fields.boolean("return_token_strs").value_or(false) || pieces;
  if (problem) return *problem;
  return request;
}

Parsed<DetokenizeRequest> parse_detokenize_request(std::string_view body) {
  auto parsed = parse_body(body);
  if (!parsed.ok()) return parsed.error();
  Problem problem;
  const Fields fields(*parsed, "", problem);
  DetokenizeRequest request;
  request.model = fields.string("model", kMaxNameBytes).value_or("");
  if (!fields.has("tokens")) fields.missing("tokens");
  request.tokens = fields.token_ids("tokens", json::kMaxValues);
  if (problem) return *problem;
  return request;
}

Parsed<ApplyTemplateRequest> parse_apply_template_request(std::string_view body) {
  auto parsed = parse_body(body);
  if (!parsed.ok()) return parsed.error();
  Problem problem;
  const Fields fields(*parsed, "", problem);
  ApplyTemplateRequest request;
  request.chat.options.model = fields.string("model", kMaxNameBytes).value_or("");
  read_conversation(fields, request.chat);
  if (problem) return *problem;
  return request;
}

std::string tokenize_answer(const std::vector<TokenId>& tokens, uint64_t max_context,
                            const std::vector<std::string>* pieces) {
  std::string out = "{\"tokens\":";
  json::append_list(out, tokens, [&](TokenId token) { json::append_int(out, token); });
  json::append_member(out, "count", tokens.size());
  json::append_member(out, "max_model_len", max_context);
  if (pieces != nullptr) {
    json::append_name(out, "token_strs");
    json::append_list(out, *pieces, [&](const auto& piece) { json::append_string(out, piece); });
  }
  return out.append("}");
}

std::string rendered_answer(const std::vector<TokenId>& tokens) {
  std::string out = "{\"token_ids\":";
  json::append_list(out, tokens, [&](TokenId token) { json::append_int(out, token); });
  return out.append("}");
}

std::string detokenize_answer(std::string_view text) {
  std::string out = "{";
  json::append_member(out, "prompt", text);
  json::append_member(out, "content", text);
  return out.append("}");
}

std::string apply_template_answer(std::string_view prompt) {
  std::string out = "{";
  json::append_member(out, "prompt", prompt);
  return out.append("}");
}

std::string count_tokens_answer(uint64_t tokens) {
  std::string out = "{";
  json::append_member(out, "input_tokens", tokens);
  return out.append("}");
}

std::string input_tokens_answer(uint64_t tokens) {
  std::string out = "{";
  json::append_member(out, "object", "response.input_tokens");
  json::append_member(out, "input_tokens", tokens);
  return out.append("}");
}

}  // namespace skein::api
