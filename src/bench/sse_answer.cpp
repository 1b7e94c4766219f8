#include "bench/sse_answer.h"

#include <algorithm>
#include <charconv>
#include <nlohmann/json.hpp>

namespace skein::bench {
namespace {

using EventJson = nlohmann::json;

constexpr size_t kMaxHeadBytes = 64 << 10;
constexpr size_t kMaxLineBytes = 4 << 20;
constexpr size_t kMaxKeptBody = 256 << 10;

std::string lower_case(std::string_view text) {
  std::string out(text);
  for (char& c : out) c = c >= 'A' && c <= 'Z' ? static_cast<char>(c + 32) : c;
  return out;
}

// The text after "name:" in a head; empty when there is no such line.
std::string header_value(const std::string& lower_head, std::string_view name) {
  const size_t at = lower_head.find("\r\n" + std::string(name) + ":");
  if (at == std::string::npos) return {};
  const size_t begin = at + 3 + name.size();
  const size_t end = std::min(lower_head.find("\r\n", begin), lower_head.size());
  std::string value = lower_head.substr(begin, end - begin);
  value.erase(0, std::min(value.find_first_not_of(' '), value.size()));
  return value;
}

std::optional<uint64_t> whole_number(std::string_view text, int base) {
  uint64_t value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value, base);
  if (error != std::errc() || end == text.data()) return std::nullopt;
  return value;
}

uint32_t count_at(const EventJson& object, const char* name) {
  const auto found = object.find(name);
  return found != object.end() && found->is_number_unsigned() && *found <= UINT32_MAX
             ? found->get<uint32_t>()
             : 0;
}

bool has_text(const EventJson& object, const char* name) {
  const auto found = object.find(name);
  return found != object.end() && found->is_string() &&
         !found->get_ref<const std::string&>().empty();
}

bool choice_has_text(const EventJson& choice) {
  if (!choice.is_object()) return false;
  const auto delta = choice.find("delta");
  if (delta == choice.end()) return has_text(choice, "text");
  return delta->is_object() &&
         (has_text(*delta, "content") || has_text(*delta, "reasoning_content"));
}

}  // namespace

Status AnswerReader::feed(std::string_view bytes) {
  while (!bytes.empty() && stage_ != Stage::kDone) {
    switch (stage_) {
      case Stage::kHead: {
        pending_.append(bytes);
        bytes = {};
        const size_t end = pending_.find("\r\n\r\n");
        if (end == std::string::npos) {
          if (pending_.size() > kMaxHeadBytes) return data_loss("the answer's head does not end");
          break;
        }
        const std::string rest = pending_.substr(end + 4);
        SKEIN_TRY(read_head(std::string_view(pending_).substr(0, end)));
        pending_.clear();
        return feed(rest);
      }
      case Stage::kLength:
      case Stage::kChunk: {
        const size_t count = std::min<uint64_t>(left_, bytes.size());
        take_body(bytes.substr(0, count));
        bytes.remove_prefix(count);
        left_ -= count;
        if (left_ == 0) stage_ = stage_ == Stage::kLength ? Stage::kDone : Stage::kChunkEnd;
        break;
      }
      case Stage::kToClose:
        take_body(bytes);
        return {};
      case Stage::kChunkSize:
      case Stage::kChunkEnd: {  // a line; that after a chunk is empty
        pending_ += bytes.front();
        bytes.remove_prefix(1);
        if (!pending_.ends_with("\r\n")) {
          if (pending_.size() > 100) return data_loss("the answer's chunks make no sense");
          break;
        }
        if (stage_ == Stage::kChunkSize) {
          SKEIN_TRY(read_chunk_size());
        } else {
          stage_ = Stage::kChunkSize;
        }
        pending_.clear();
        break;
      }
      case Stage::kDone:
        break;
    }
    if (line_.size() > kMaxLineBytes)
      return data_loss("an event is longer than {} bytes", kMaxLineBytes);
  }
  return {};
}

Status AnswerReader::closed() {
  if (stage_ == Stage::kToClose) stage_ = Stage::kDone;
  if (stage_ == Stage::kDone) return {};
  return data_loss("the server closed {}",
                   stage_ == Stage::kHead ? "without an answer" : "in the middle of its answer");
}

Status AnswerReader::read_head(std::string_view head) {
  const std::string lower = lower_case(head) + "\r\n";
  if (!lower.starts_with("http/1.") || lower.size() < 12) return data_loss("the answer is no HTTP");
  const auto status = whole_number(std::string_view(lower).substr(9, 3), 10);
  if (!status) return data_loss("the answer has no status");
  status_ = static_cast<int>(*status);
  is_stream_ = header_value(lower, "content-type").starts_with("text/event-stream");
  if (header_value(lower, "transfer-encoding").find("chunked") != std::string::npos) {
    stage_ = Stage::kChunkSize;
  } else if (const auto length = whole_number(header_value(lower, "content-length"), 10)) {
    left_ = *length;
    stage_ = left_ == 0 ? Stage::kDone : Stage::kLength;
  } else {
    stage_ = Stage::kToClose;
  }
  return {};
}

Status AnswerReader::read_chunk_size() {
  const auto size = whole_number(pending_, 16);
  if (!size) return data_loss("a chunk of the answer has no size");
  left_ = *size;
  stage_ = left_ == 0 ? Stage::kDone : Stage::kChunk;
  return {};
}

void AnswerReader::take_body(std::string_view bytes) {
  if (!is_stream_) {
    body_.append(bytes.substr(0, kMaxKeptBody - std::min(body_.size(), kMaxKeptBody)));
    return;
  }
  while (!bytes.empty()) {
    const size_t end = bytes.find('\n');
    line_.append(bytes.substr(0, end));
    if (end == std::string_view::npos) return;
    bytes.remove_prefix(end + 1);
    std::string_view line = line_;
    if (line.ends_with('\r')) line.remove_suffix(1);
    if (line.starts_with("data:")) {
      line.remove_prefix(line.starts_with("data: ") ? 6 : 5);
      on_event_(line);
    }
    line_.clear();
  }
}

bool read_event(std::string_view data, StreamTotals& totals) {
  if (data == "[DONE]") {
    totals.done = true;
    return false;
  }
  const EventJson event = EventJson::parse(data, nullptr, false);
  if (!event.is_object()) {
    totals.error = data_loss("an event is not a JSON object");
    return false;
  }
  if (const auto error = event.find("error"); error != event.end() && !error->is_null()) {
    totals.error = unavailable("the server ended the stream: {}", error->dump().substr(0, 300));
    return false;
  }
  if (const auto usage = event.find("usage"); usage != event.end() && usage->is_object()) {
    totals.prompt_tokens = count_at(*usage, "prompt_tokens");
    totals.generated_tokens = count_at(*usage, "completion_tokens");
    if (const auto details = usage->find("prompt_tokens_details");
        details != usage->end() && details->is_object()) {
      totals.cached_tokens = count_at(*details, "cached_tokens");
    }
  }
  const auto choices = event.find("choices");
  if (choices == event.end() || !choices->is_array()) return false;
  const bool text = std::any_of(choices->begin(), choices->end(), choice_has_text);
  totals.events_with_text += text ? 1 : 0;
  return text;
}

}  // namespace skein::bench
