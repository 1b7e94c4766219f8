#include "server/api/batch_request.h"

#include <charconv>

#include "server/api/fields.h"
#include "server/api/generation.h"

namespace skein::api {
namespace {

constexpr size_t kMaxMetadata = 16;
constexpr size_t kMaxMetadataValue = 512;
constexpr int64_t kMaxWindowHours = 24 * 14;

// "24h" or "14d".
int64_t read_window(const Fields& fields) {
  const std::string text = fields.string("completion_window").value_or("24h");
  int64_t count = 0;
  const char* end = text.data() + text.size();
  const auto parsed = std::from_chars(text.data(), end, count);
  const bool known = parsed.ec == std::errc() && parsed.ptr + 1 == end &&
                     (*parsed.ptr == 'h' || *parsed.ptr == 'd');
  const int64_t most = known && *parsed.ptr == 'd' ? kMaxWindowHours / 24 : kMaxWindowHours;
  if (!known || count < 1 || count > most) {
    fields.fail("completion_window",
                "Hours or days as in 24h or 7d are expected here, at most 14d.");
    return 0;
  }
  return count * (*parsed.ptr == 'd' ? 86'400 : 3'600);
}

}  // namespace

std::string_view batch_url(BatchEndpoint endpoint) {
  return endpoint == BatchEndpoint::kChatCompletions ? "/v1/chat/completions" : "/v1/completions";
}

Parsed<BatchRequest> parse_batch_request(std::string_view body) {
  auto parsed = parse_body(body);
  if (!parsed.ok()) return parsed.error();
  Problem problem;
  const Fields fields(*parsed, "", problem);
  BatchRequest request;
  request.input_file_id = fields.required_string("input_file_id", kMaxNameBytes);
  if (!fields.has("endpoint")) fields.missing("endpoint");
  if (const auto at = fields.choice("endpoint", {"/v1/chat/completions", "/v1/completions"})) {
    request.endpoint = static_cast<BatchEndpoint>(*at);
  }
  request.completion_window_s = read_window(fields);
  if (const json::Value* metadata = fields.object("metadata")) {
    bool fits = metadata->size() <= kMaxMetadata;
    for (const auto& [name, value] : metadata->items()) {
      fits = fits && name.size() <= kMaxMetadataValue && value.is_string() &&
             value.get_ref<const std::string&>().size() <= kMaxMetadataValue;
    }
    if (!fits) {
      fields.fail("metadata", fmt::format("At most {} strings of at most {} bytes are expected.",
                                          kMaxMetadata, kMaxMetadataValue));
    }
    request.metadata = *metadata;
  }
  if (problem) return *problem;
  return request;
}

Parsed<BatchLine> parse_batch_line(std::string_view line, BatchEndpoint endpoint) {
  auto parsed = parse_body(line);
  if (!parsed.ok()) return parsed.error();
  Problem problem;
  const Fields fields(*parsed, "", problem);
  BatchLine request;
  request.custom_id = fields.required_string("custom_id", kMaxNameBytes);
  if (!problem && request.custom_id.empty()) fields.fail("custom_id", "It must not be empty.");
  if (!fields.has("method")) fields.missing("method");
  fields.choice("method", {"POST"});
  if (fields.required_string("url") != batch_url(endpoint)) {
    fields.fail("url", "It must be the endpoint of the batch.");
  }
  const json::Value* body = fields.object("body");
  if (body == nullptr) fields.missing("body");
  if (!problem) {
    if (Fields(*body, "body", problem).boolean("stream").value_or(false)) {
      fields.fail("body.stream", "A line of a batch cannot be streamed.");
    }
  }
  if (problem) return *problem;
  request.body = *body;
  return request;
}

std::string custom_id_of(std::string_view line) {
  auto parsed = parse_body(line);
  if (!parsed.ok()) return {};
  Problem problem;
  return Fields(*parsed, "", problem).string("custom_id", kMaxNameBytes).value_or("");
}

}  // namespace skein::api
