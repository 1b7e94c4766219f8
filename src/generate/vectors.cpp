#include "generate/vectors.h"

#include <cmath>

namespace skein {
namespace {

constexpr std::string_view kRankBegin =
    "<|im_start|>system\nJudge whether the Document meets the requirements based on the Query and "
    "the Instruct provided. Note that the answer can only be \"yes\" or \"no\".<|im_end|>\n"
    "<|im_start|>user\n<Instruct>: ";
constexpr std::string_view kRankQuery = "\n<Query>: ";
constexpr std::string_view kRankDocument = "\n<Document>: ";
constexpr std::string_view kRankEnd = "<|im_end|>\n<|im_start|>assistant\n<think>\n\n</think>\n\n";

}  // namespace

Result<std::vector<float>> unit_vector(std::vector<float> vector, uint32_t dimensions) {
  if (dimensions > 0 && dimensions < vector.size()) vector.resize(dimensions);
  double squares = 0;
  for (const float value : vector) squares += double{value} * double{value};
  if (!(squares > 0) || !std::isfinite(squares)) {
    return internal_error("a vector of {} numbers has the squared length {}", vector.size(),
                          squares);
  }
  const double length = std::sqrt(squares);
  for (float& value : vector) value = static_cast<float>(double{value} / length);
  return vector;
}

Result<std::vector<TokenId>> rank_prompt(const PromptBuilder& prompts, const Tokenizer& tokenizer,
                                         const RankQuestion& question) {
  const TextPart parts[] = {{kRankBegin, true},    {question.instruction, false},
                            {kRankQuery, true},    {question.query, false},
                            {kRankDocument, true}, {question.document, false},
                            {kRankEnd, true}};
  uint64_t bytes = 0;
  for (const TextPart& part : parts) bytes += part.text.size();
  SKEIN_TRY(prompts.check_bytes(bytes));
  return tokenizer.encode(parts, false);
}

Result<PairTokens> rank_pair(const PromptBuilder& prompts, const Tokenizer& tokenizer,
                             std::string_view query, std::string_view document) {
  SKEIN_TRY(prompts.check_bytes(uint64_t{query.size()} + document.size()));
  return tokenizer.encode_pair(query, document);
}

}  // namespace skein
