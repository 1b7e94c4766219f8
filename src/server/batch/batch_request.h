// OpenAI's Batch API: the request that makes a batch, and the lines of its input file.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "server/api/errors.h"
#include "server/json.h"
#include "server/store/batch_store.h"

namespace skein {

// The routes that the lines of a batch may ask.
inline constexpr std::string_view kBatchChatUrl = "/v1/chat/completions";
inline constexpr std::string_view kBatchCompletionsUrl = "/v1/completions";
inline constexpr std::string_view kBatchResponsesUrl = "/v1/responses";
inline constexpr std::string_view kBatchEmbeddingsUrl = "/v1/embeddings";

// The batch that a body asks for; its owner is the caller's to add.
api::Parsed<NewBatch> parse_batch_request(std::string_view body);

// Why a line cannot be run.
struct LineProblem {
  std::string_view code;
  std::string_view message;
  bool fails_batch = false;  // the whole file is not what the batch was made for
};

struct ParsedLine {
  std::string custom_id;  // empty: it has none that can be used
  std::string model;      // that the body names; empty: none
  json::Value body;       // of the request
  std::vector<LineProblem> problems;
};

// {custom_id, method, url, body}, for a batch of that url: when the file is checked, and again when
// the line is run.
ParsedLine parse_batch_line(std::string_view text, std::string_view url);

// The answer of a line with this problem.
LineResult refusal(const LineProblem& problem);
LineResult failed_line(const api::Error& error);

}  // namespace skein
