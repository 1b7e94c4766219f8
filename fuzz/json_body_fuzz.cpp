// Any bytes as the body of every endpoint: a request or an error that names its field, and answers
// that are JSON whatever the text is.
#include <cstdint>
#include <string>
#include <string_view>

#include "base/check.h"
#include "server/api/chat_request.h"
#include "server/api/completion_request.h"
#include "server/api/responses_request.h"
#include "server/api/text_requests.h"
#include "server/api/vector_requests.h"
#include "server/batch/batch_request.h"
#include "server/json.h"

namespace {

using namespace skein;
using namespace skein::api;

template <class T>
void check(Parsed<T> parsed) {
  if (parsed.ok()) return;
  const Error& error = parsed.error();
  SKEIN_CHECK(error.status == 400 || error.status == 501, "status {}", error.status);
  SKEIN_CHECK(!error.message.empty(), "an error without a text");
  for (const Dialect dialect : {Dialect::kOpenAi, Dialect::kAnthropic}) {
    SKEIN_CHECK(json::parse(error_body(dialect, error)).index() == 0, "an error that is not JSON");
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::string_view body(reinterpret_cast<const char*>(data), size);
  auto chat = parse_chat_request(body);
  if (chat.ok()) {
    SKEIN_CHECK(chat->options.n >= 1 && chat->options.n <= kMaxChoices, "n");
    SKEIN_CHECK(!chat->messages.empty(), "no messages");
    const SamplingParams params = chat->options.sampling_params({}, 1);
    SKEIN_CHECK(params.top_p > 0 && params.top_p <= 1, "top_p {}", params.top_p);
    SKEIN_CHECK(json::parse(chat->conversation().context.dump()).index() == 0, "a context");
  }
  check(std::move(chat));
  check(parse_completion_request(body));
  check(parse_messages_request(body, true));
  auto response = parse_responses_request(body, {.can_keep = true});
  if (response.ok()) {
    SKEIN_CHECK(!response->messages.empty(), "no messages");
    const std::string echo = "{" + *response->options.echo + "}";
    SKEIN_CHECK(json::parse(echo).index() == 0, "an answer that is not JSON");
    if (response->options.kept != nullptr) {
      auto kept = read_kept_items(response->options.kept->input);
      SKEIN_CHECK(kept.ok(), "kept items that are no list");
      for (size_t i = 0; i < kept->size(); ++i) {
        SKEIN_CHECK(shown_item((*kept)[i], "resp_1", i).contains("id"), "an item without an id");
      }
    }
  }
  check(std::move(response));
  check(parse_tokenize_request(body));
  check(parse_detokenize_request(body));
  check(parse_apply_template_request(body));
  check(parse_embedding_request(body));
  check(parse_rerank_request(body));
  check(parse_batch_request(body));
  const ParsedLine line = parse_batch_line(body, kBatchChatUrl);
  SKEIN_CHECK(!line.problems.empty() || line.body.is_object(), "a line without a body");
  std::string text;
  json::append_string(text, body);
  SKEIN_CHECK(json::parse(text).index() == 0, "a string that is not JSON");
  return 0;
}
