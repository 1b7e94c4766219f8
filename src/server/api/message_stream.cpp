#include "server/api/message_stream.h"

#include "server/json/append.h"

namespace skein::api {

void MessageStream::begin(std::string& out, const Identity& identity, const Usage& usage) {
  out.append("event: message_start\ndata: {\"type\":\"message_start\",\"message\":{\"id\":");
  json::append_string(out, identity.id);
  out.append(",\"type\":\"message\",\"role\":\"assistant\",\"model\":");
  json::append_string(out, identity.model);
  out.append(
      ",\"content\":[],\"stop_reason\":null,\"stop_sequence\":null,\"usage\":{\"input_tokens\":");
  json::append_int(out, static_cast<int64_t>(usage.prompt_tokens - usage.cached_tokens));
  out.append(",\"cache_creation_input_tokens\":0,\"cache_read_input_tokens\":");
  json::append_int(out, static_cast<int64_t>(usage.cached_tokens));
  out.append(
      ",\"output_tokens\":0}}}\n\n"
      "event: content_block_start\ndata: {\"type\":\"content_block_start\",\"index\":0,"
      "\"content_block\":{\"type\":\"text\",\"text\":\"\"}}\n\n");
}

void MessageStream::text(std::string& out, std::string_view text) {
  out.append(
      "event: content_block_delta\ndata: {\"type\":\"content_block_delta\",\"index\":0,"
      "\"delta\":{\"type\":\"text_delta\",\"text\":");
  json::append_string(out, text);
  out.append("}}\n\n");
}

void MessageStream::finish(std::string& out, const Choice& choice, const Usage& usage) {
  out.append(
      "event: content_block_stop\ndata: {\"type\":\"content_block_stop\",\"index\":0}\n\n"
      "event: message_delta\ndata: {\"type\":\"message_delta\",\"delta\":{\"stop_reason\":");
  json::append_string(out, anthropic_finish(choice));
  out.append(",\"stop_sequence\":");
  if (choice.stop_sequence.empty()) {
    out.append("null");
  } else {
    json::append_string(out, choice.stop_sequence);
  }
  out.append("},\"usage\":{\"output_tokens\":");
  json::append_int(out, static_cast<int64_t>(usage.completion_tokens));
  out.append("}}\n\nevent: message_stop\ndata: {\"type\":\"message_stop\"}\n\n");
}

void MessageStream::error(std::string& out, const Error& error) {
  out.append("event: error\ndata: ");
  out.append(error_body(Dialect::kAnthropic, error)).append("\n\n");
}

}  // namespace skein::api
