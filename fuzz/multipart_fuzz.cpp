// Any bytes as a multipart body: whole and cut into pieces they must be the same parts or the same
// refusal. The first line of the input is the Content-Type.
#include <algorithm>
#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/check.h"
#include "server/http/multipart.h"

namespace {

using namespace skein;
using namespace skein::http;

class Recorder final : public PartReceiver {
 public:
  std::optional<Fault> begin_part(const PartHead& head) override {
    SKEIN_CHECK(!std::exchange(inside_, true), "a part inside a part");
    parts.push_back(head.name + '\0' + head.filename.value_or("") + '\0');
    return std::nullopt;
  }
  std::optional<Fault> part_data(std::string_view bytes) override {
    SKEIN_CHECK(inside_ && !bytes.empty(), "data of no part, or none");
    parts.back().append(bytes);
    return std::nullopt;
  }
  std::optional<Fault> end_part() override {
    SKEIN_CHECK(std::exchange(inside_, false), "the end of no part");
    return std::nullopt;
  }
  std::vector<std::string> parts;

 private:
  bool inside_ = false;
};

struct Outcome {
  int status = 0;
  std::vector<std::string> parts;  // of what was refused, none
  bool operator==(const Outcome&) const = default;
};

Outcome read(std::string_view boundary, std::string_view body, size_t piece) {
  Recorder recorder;
  MultipartParser parser(boundary, recorder);
  std::optional<Fault> fault;
  for (size_t at = 0; at < body.size() && !fault; at += piece) {
    fault = parser.advance(body.substr(at, piece));
  }
  if (!fault) fault = parser.finish();
  SKEIN_CHECK(recorder.parts.size() <= MultipartLimits{}.parts, "{} parts", recorder.parts.size());
  if (fault) return {fault->status, {}};
  return {0, recorder.parts};
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::string_view input(reinterpret_cast<const char*>(data), size);
  const size_t line = std::min(input.find('\n'), input.size());
  const auto boundary = boundary_of(input.substr(0, line));
  if (!boundary) return 0;
  const std::string_view body = input.substr(std::min(line + 1, input.size()));
  const Outcome whole = read(*boundary, body, body.size() + 1);
  for (const size_t piece : {size_t{1}, size_t{2}, size_t{7}, size_t{64}}) {
    SKEIN_CHECK(read(*boundary, body, piece) == whole, "cut every {} bytes it is something else",
                piece);
  }
  return 0;
}
