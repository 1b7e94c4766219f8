// Any bytes as HTTP requests: whole and cut into pieces they must be understood the same way, and
// what is accepted must keep what the parser promises.
#include <algorithm>
#include <cstdint>
#include <string>
#include <string_view>

#include "base/check.h"
#include "server/http/request_parser.h"

namespace {

using namespace skein;
using namespace skein::http;

constexpr uint64_t kBodyLimit = 4096;

struct Outcome {
  ParseState head = ParseState::kNeedMore;
  ParseState body = ParseState::kNeedMore;
  int status = 0;
  size_t consumed = 0;
  std::string text;
  bool operator==(const Outcome&) const = default;
};

void check_head(RequestHead& head) {
  const auto count = [&](std::string_view name) {
    return std::count_if(head.headers.begin(), head.headers.end(),
                         [&](const Header& header) { return header.name == name; });
  };
  SKEIN_CHECK(count("host") == 1, "{} Host fields", count("host"));
  SKEIN_CHECK(count("content-length") + count("transfer-encoding") ==
                  (head.framing == Framing::kNone ? 0 : 1),
              "the framing is not what the fields say");
  SKEIN_CHECK(head.path == "*" || head.path.starts_with('/'), "path {}", head.path);
  for (const Header& header : head.headers) {
    SKEIN_CHECK(!header.name.empty(), "a field without a name");
    SKEIN_CHECK(header.value.find_first_of("\r\n\0") == std::string::npos, "a line break inside");
  }
}

// Feeds `piece` bytes at a time.
Outcome read(std::string_view bytes, size_t piece) {
  Outcome outcome;
  HeadParser parser({.bytes = 2048, .fields = 20});
  const auto next = [&] { return bytes.substr(outcome.consumed, piece); };
  while (outcome.consumed < bytes.size() && outcome.head == ParseState::kNeedMore) {
    size_t consumed = 0;
    outcome.head = parser.advance(next(), consumed);
    outcome.consumed += consumed;
  }
  if (outcome.head == ParseState::kFailed) outcome.status = parser.fault().status;
  if (outcome.head != ParseState::kDone) return outcome;
  check_head(parser.head());
  BodyDecoder decoder(parser.head(), kBodyLimit);
  while (outcome.consumed < bytes.size() && decoder.state() == ParseState::kNeedMore) {
    const BodyDecoder::Step step = decoder.advance(next());
    SKEIN_CHECK(step.consumed > 0, "no progress");
    outcome.text.append(step.piece);
    outcome.consumed += step.consumed;
  }
  outcome.body = decoder.state();
  if (outcome.body == ParseState::kFailed) outcome.status = decoder.fault().status;
  SKEIN_CHECK(outcome.text.size() <= kBodyLimit, "a body of {} bytes", outcome.text.size());
  return outcome;
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::string_view bytes(reinterpret_cast<const char*>(data), size);
  const Outcome whole = read(bytes, bytes.size() + 1);
  for (const size_t piece : {size_t{1}, size_t{7}}) {
    SKEIN_CHECK(read(bytes, piece) == whole, "cut every {} bytes it is something else", piece);
  }
  const bool failed = whole.head == ParseState::kFailed || whole.body == ParseState::kFailed;
  SKEIN_CHECK(failed == (whole.status >= 400), "status {}", whole.status);
  return 0;
}
