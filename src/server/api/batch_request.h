// OpenAI's Batch API: the request that makes one, and the lines of its input file.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "server/api/errors.h"
#include "server/json/parse.h"

namespace skein::api {

enum class BatchEndpoint : uint8_t { kChatCompletions, kCompletions };

std::string_view batch_url(BatchEndpoint endpoint);

struct BatchRequest {
  std::string input_file_id;
  BatchEndpoint endpoint = BatchEndpoint::kChatCompletions;
  int64_t completion_window_s = 0;
  json::Value metadata;  // an object of at most 16 strings, or null
};

Parsed<BatchRequest> parse_batch_request(std::string_view body);

struct BatchLine {
  std::string custom_id;
  json::Value body;  // for read_chat_request or read_completion_request
};

// One line of the file, for a batch of that endpoint. stream is refused: there is nobody to stream
// to.
Parsed<BatchLine> parse_batch_line(std::string_view line, BatchEndpoint endpoint);

// The custom_id of a line that is refused, where it can be read; else empty.
std::string custom_id_of(std::string_view line);

}  // namespace skein::api
