// The events of a streamed Anthropic message.
#pragma once

#include <string>
#include <string_view>

#include "server/api/answers.h"
#include "server/api/errors.h"

namespace skein::api {

inline constexpr std::string_view kPingEvent = "event: ping\ndata: {\"type\":\"ping\"}\n\n";

// In this order: begin, text*, finish; or error, after which nothing comes. Each appends its events
// to `out`. Stateless: any thread.
class MessageStream {
 public:
  // message_start, content_block_start.
  static void begin(std::string& out, const Identity& identity, const Usage& usage);
  // content_block_delta; the text is whole characters.
  static void text(std::string& out, std::string_view text);
  // content_block_stop, message_delta, message_stop. The choice's text is not used.
  static void finish(std::string& out, const Choice& choice, const Usage& usage);
  static void error(std::string& out, const Error& error);
};

}  // namespace skein::api
