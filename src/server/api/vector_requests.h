// Vectors and scores of texts: POST /v1/embeddings and /v1/rerank.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/time.h"
#include "server/api/errors.h"
#include "server/api/prompt_fields.h"
#include "server/json.h"

namespace skein::api {

inline constexpr size_t kMaxInputs = 2048;
inline constexpr size_t kMaxDocuments = 1024;
inline constexpr uint32_t kMaxDimensions = 1 << 18;

struct EmbeddingRequest {
  std::string model;  // empty: the first
  std::vector<Prompt> inputs;
  bool base64 = false;                 // little-endian float32, else numbers
  std::optional<uint32_t> dimensions;  // the first ones of each vector
  std::optional<TimeUs> timeout_us;    // for the whole request
};

struct RerankRequest {
  std::string model;
  std::string instruction;  // empty: the model's own
  std::string query;
  std::vector<std::string> documents;  // texts, or objects with a text
  size_t top_n = 0;                    // at least 1
  bool return_documents = false;
  std::optional<TimeUs> timeout_us;
};

Parsed<EmbeddingRequest> parse_embedding_request(std::string_view body);
Parsed<EmbeddingRequest> read_embedding_request(const json::Value& body);
Parsed<RerankRequest> parse_rerank_request(std::string_view body);

// One item of "data": {"object":"embedding","index":0,"embedding":[...]}, all of them finite.
void append_embedding(std::string& out, size_t index, std::span<const float> vector, bool base64);
// The bytes that such an item takes, at most.
uint64_t embedding_bytes(uint64_t dimensions, bool base64);

struct RankedDocument {
  size_t index = 0;  // among the request's
  double score = 0;
};

// {"id":...,"model":...,"results":[{"index":0,"relevance_score":0.9},...],"usage":{...}}
std::string rerank_answer(std::string_view id, std::string_view model, const RerankRequest& request,
                          std::span<const RankedDocument> results, uint64_t prompt_tokens);
// "usage":{"prompt_tokens":2,"total_tokens":2}, after a comma unless it is the first member.
void append_prompt_usage(std::string& out, uint64_t prompt_tokens);

}  // namespace skein::api
