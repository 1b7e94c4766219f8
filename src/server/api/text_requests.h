// The small requests about text: /tokenize, /detokenize, /apply-template. They take vLLM's and
// llama.cpp's names.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/ids.h"
#include "server/api/chat_request.h"
#include "server/api/errors.h"

namespace skein::api {

struct TokenizeRequest {
  std::string model;
  std::string text;                 // {prompt} or {content}
  std::optional<ChatRequest> chat;  // {messages} instead
  bool add_special = false;         // by default true with {prompt}, false with {content}
  bool with_pieces = false;         // also the text of each token
};

struct DetokenizeRequest {
  std::string model;
  std::vector<TokenId> tokens;
};

struct ApplyTemplateRequest {
  ChatRequest chat;  // of its options, the model alone is set
};

Parsed<TokenizeRequest> parse_tokenize_request(std::string_view body);
Parsed<DetokenizeRequest> parse_detokenize_request(std::string_view body);
Parsed<ApplyTemplateRequest> parse_apply_template_request(std::string_view body);

// {"tokens":[...],"count":2,"max_model_len":4096}, with "token_strs" where pieces are given.
std::string tokenize_answer(const std::vector<TokenId>& tokens, uint64_t max_context,
                            const std::vector<std::string>* pieces);
// {"token_ids":[...]}
std::string rendered_answer(const std::vector<TokenId>& tokens);
// {"input_tokens":2}
std::string count_tokens_answer(uint64_t tokens);
// {"object":"response.input_tokens","input_tokens":2}
std::string input_tokens_answer(uint64_t tokens);
// {"prompt":"...","content":"..."}
std::string detokenize_answer(std::string_view text);
// {"prompt":"..."}
std::string apply_template_answer(std::string_view prompt);

}  // namespace skein::api
