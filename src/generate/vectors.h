// Vectors of texts, and the prompt that a model ranks documents by. The server and libskein are its
// users.
#pragma once

#include <cstdint>
#include <string_view>
#include <vector>

#include "base/ids.h"
#include "base/status.h"
#include "generate/prompt.h"
#include "text/tokenizer.h"

namespace skein {

// The first `dimensions` of a vector (0: all of it; no more than it has), at length 1. The length
// is added up in float64, in order, so the same vector always gives the same bits. kInternal for a
// vector of length 0.
Result<std::vector<float>> unit_vector(std::vector<float> vector, uint32_t dimensions = 0);

// What Qwen3-Reranker was trained to be told where nobody says what the search is about.
inline constexpr std::string_view kRankInstruction =
    "Given a web search query, retrieve relevant passages that answer the query";

struct RankQuestion {
  std::string_view instruction = kRankInstruction;
  std::string_view query;
  std::string_view document;
};

// The prompt after which a model of that kind says yes or no. What is asked about stays data:
// control tokens that it spells out are text. Fails as PromptBuilder does.
Result<std::vector<TokenId>> rank_prompt(const PromptBuilder& prompts, const Tokenizer& tokenizer,
                                         const RankQuestion& question);

// The two texts that an encoder compares. Fails likewise.
Result<PairTokens> rank_pair(const PromptBuilder& prompts, const Tokenizer& tokenizer,
                             std::string_view query, std::string_view document);

}  // namespace skein
