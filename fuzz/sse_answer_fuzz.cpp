// Any bytes as what an HTTP server sends to `skein bench`: however they are cut, the same events
// come of them.
#include <algorithm>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "base/check.h"
#include "bench/sse_answer.h"

namespace {

using namespace skein;

struct Seen {
  std::vector<std::string> events;
  bool ok = true;
  bool complete = false;
  int status = 0;
  std::string body;

  bool operator==(const Seen&) const = default;
};

Seen read(std::string_view bytes, size_t step) {
  Seen seen;
  bench::StreamTotals totals;
  bench::AnswerReader reader([&](std::string_view data) {
    seen.events.emplace_back(data);
    bench::read_event(data, totals);
  });
  while (seen.ok && !bytes.empty()) {
    seen.ok = reader.feed(bytes.substr(0, step)).ok();
    bytes.remove_prefix(std::min(step, bytes.size()));
  }
  seen.complete = reader.complete();
  seen.status = reader.status();
  seen.body = reader.body();
  if (seen.ok) seen.ok = reader.closed().ok();
  return seen;
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::string_view bytes(reinterpret_cast<const char*>(data), size);
  const Seen whole = read(bytes, std::max<size_t>(size, 1));
  const Seen single = read(bytes, 1);
  SKEIN_CHECK(whole.ok == single.ok, "whole {}, byte by byte {}", whole.ok, single.ok);
  if (whole.ok)
    SKEIN_CHECK(whole == single, "{} events, {}", whole.events.size(), single.events.size());
  return 0;
}
