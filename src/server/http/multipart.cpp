#include "server/http/multipart.h"

#include <algorithm>
#include <fmt/core.h>

namespace skein::http {
namespace {

constexpr size_t kMaxBoundary = 70;
constexpr Fault kBadBody{400, "the multipart body is not valid"};
constexpr Fault kBadPart{400, "the head of a part is not valid"};

bool is_boundary_char(char c) {
  return is_token_char(c) || std::string_view("'()+_,-./:=? ").find(c) != std::string_view::npos;
}

// name="value" or name=token out of a field's parameters; what a quoted string escapes stays as it
// is, as browsers and HTTP libraries write it.
std::optional<std::string> parameter(std::string_view field, std::string_view name) {
  size_t at = field.find(';');
  while (at != std::string_view::npos) {
    field = trimmed(field.substr(at + 1));
    const size_t equals = field.find('=');
    if (equals == std::string_view::npos) return std::nullopt;
    const std::string_view key = trimmed(field.substr(0, equals));
    std::string_view value = field.substr(equals + 1);
    if (value.starts_with('"')) {
      const size_t end = value.find('"', 1);
      if (end == std::string_view::npos) return std::nullopt;
      field = value.substr(end + 1);
      value = value.substr(1, end - 1);
    } else {
      const size_t end = std::min(value.find(';'), value.size());
      field = value.substr(end);
      value = trimmed(value.substr(0, end));
    }
    if (equals_ignoring_case(key, name)) return std::string(value);
    at = field.find(';');
  }
  return std::nullopt;
}

// The lines of a part's head, each ended by CRLF.
std::optional<Part> read_part(std::string_view head) {
  std::optional<Part> part;
  while (!head.empty()) {
    const size_t end = head.find("\r\n");
    const std::string_view line = head.substr(0, end);
    head.remove_prefix(end + 2);
    const size_t colon = line.find(':');
    if (colon == std::string_view::npos || colon == 0) return std::nullopt;
    if (!std::all_of(line.begin(), line.begin() + static_cast<ptrdiff_t>(colon), is_token_char)) {
      return std::nullopt;
    }
    if (!equals_ignoring_case(line.substr(0, colon), "content-disposition")) continue;
    const std::string_view value = trimmed(line.substr(colon + 1));
    auto name = parameter(value, "name");
    const std::string_view kind = trimmed(value.substr(0, value.find(';')));
    if (part || !name || !equals_ignoring_case(kind, "form-data")) return std::nullopt;
    part = Part{std::move(*name), parameter(value, "filename")};
  }
  return part;
}

}  // namespace

std::optional<std::string> multipart_boundary(std::string_view content_type) {
  const std::string_view kind = trimmed(content_type.substr(0, content_type.find(';')));
  if (!equals_ignoring_case(kind, "multipart/form-data")) return std::nullopt;
  auto boundary = parameter(content_type, "boundary");
  if (!boundary || boundary->empty() || boundary->size() > kMaxBoundary) return std::nullopt;
  if (!std::all_of(boundary->begin(), boundary->end(), is_boundary_char)) return std::nullopt;
  return boundary;
}

// The body begins as if the CRLF before the first delimiter had just been read.
MultipartParser::MultipartParser(std::string_view boundary, PartHandler& handler)
    : delimiter_(fmt::format("\r\n--{}", boundary)), handler_(handler), held_("\r\n") {}

std::optional<Fault> MultipartParser::advance(std::string_view piece) {
  held_.append(piece);
  std::optional<Fault> fault;
  while (!fault && step(fault)) {
  }
  return fault;
}

// Whether there may be more to do with what is held.
bool MultipartParser::step(std::optional<Fault>& fault) {
  const State before = state_;
  const size_t held = held_.size();
  switch (state_) {
    case State::kDelimiter:
    case State::kAfterDelimiter:
      fault = take_delimiter();
      break;
    case State::kHead:
      fault = take_head();
      break;
    case State::kData:
      fault = take_data();
      break;
    case State::kEnd:
      held_.clear();
      return false;  // an epilogue means nothing
  }
  return state_ != before || (held_.size() != held && !held_.empty());
}

std::optional<Fault> MultipartParser::take_delimiter() {
  if (state_ == State::kDelimiter) {
    const size_t known = std::min(held_.size(), delimiter_.size());
    if (held_.compare(0, known, delimiter_, 0, known) != 0) return kBadBody;
    if (known < delimiter_.size()) return std::nullopt;
    held_.erase(0, delimiter_.size());
    state_ = State::kAfterDelimiter;
  }
  if (held_.size() < 2) return std::nullopt;
  if (held_.starts_with("--")) {
    state_ = State::kEnd;
  } else if (held_.starts_with("\r\n")) {
    if (++parts_ > kMaxParts) return Fault{400, "the multipart body has too many parts"};
    state_ = State::kHead;
  } else {
    return kBadBody;
  }
  held_.erase(0, 2);
  return std::nullopt;
}

std::optional<Fault> MultipartParser::take_head() {
  const size_t end = held_.find("\r\n\r\n");
  if (std::min(end, held_.size()) > kMaxPartHead) return kBadPart;
  if (end == std::string::npos) return std::nullopt;
  const auto part = read_part(std::string_view(held_).substr(0, end + 2));
  if (!part) return kBadPart;
  held_.erase(0, end + 4);
  state_ = State::kData;
  return handler_.begin(*part);
}

std::optional<Fault> MultipartParser::take_data() {
  const size_t found = held_.find(delimiter_);
  // Without a delimiter in sight, all but what may be the beginning of one is data.
  const size_t safe = held_.size() < delimiter_.size() ? 0 : held_.size() - delimiter_.size() + 1;
  const size_t count = found == std::string::npos ? safe : found;
  if (count > 0) {
    if (auto fault = handler_.data(std::string_view(held_).substr(0, count))) return fault;
    held_.erase(0, count);
  }
  if (found == std::string::npos) return std::nullopt;
  held_.erase(0, delimiter_.size());
  state_ = State::kAfterDelimiter;
  return handler_.end();
}

std::optional<Fault> MultipartParser::finish() const {
  if (state_ == State::kEnd) return std::nullopt;
  return Fault{400, "the multipart body ended early"};
}

}  // namespace skein::http
