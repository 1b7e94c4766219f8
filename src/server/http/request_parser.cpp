#include "server/http/request_parser.h"

#include <algorithm>
#include <charconv>
#include <utility>

namespace skein::http {
namespace {

constexpr size_t kMaxMethod = 32;
constexpr std::string_view kVersionPrefix = "HTTP/1.";

// A target is made of visible ASCII. A fragment is the client's own business and has no
// place in a request.
bool is_target_char(char c) {
  return c > 0x20 && c < 0x7F && c != '#';
}

// Whether `c` may stand in the value of a field, or in a quoted string.
bool is_value_char(char c) {
  return c == '\t' || (static_cast<uint8_t>(c) >= 0x20 && c != 0x7F);
}

constexpr uint32_t kMaxOverhead = 16 << 10;
constexpr uint32_t kMaxSizeDigits = 15;  // cannot overflow
constexpr std::string_view kTooLarge = "the request's body is too large";
constexpr std::string_view kBadChunk = "a chunk of the body is not valid";

}  // namespace

ParseState HeadParser::advance(std::string_view bytes, size_t& consumed) {
  consumed = 0;
  while (consumed < bytes.size() && state_ < State::kDone) {
    if (++bytes_ > limits_.bytes) {
      fail(431, "the request's head is too large");
      break;
    }
    take(bytes[consumed++]);
  }
  if (state_ == State::kFailed) return ParseState::kFailed;
  return state_ == State::kDone ? ParseState::kDone : ParseState::kNeedMore;
}

void HeadParser::take(char c) {
  switch (state_) {
    case State::kStart:
      if (c == '\r') {
        state_ = State::kStartCr;
        return;
      }
      state_ = State::kMethod;
      return take_start_line(c);
    case State::kStartCr:
      if (c != '\n') return fail(400, "a line does not end with CRLF");
      state_ = State::kStart;
      return;
    case State::kMethod:
    case State::kTarget:
    case State::kVersion:
      return take_start_line(c);
    case State::kVersionCr:
    case State::kValueCr:
      if (c != '\n') return fail(400, "a line does not end with CRLF");
      if (state_ == State::kValueCr) finish_field();
      if (state_ != State::kFailed) state_ = State::kLine;
      return;
    case State::kLine:
    case State::kName:
    case State::kValue:
      return take_field(c);
    case State::kEndCr:
      if (c != '\n') return fail(400, "a line does not end with CRLF");
      return finish();
    case State::kDone:
    case State::kFailed:
      return;
  }
}

void HeadParser::take_start_line(char c) {
  if (state_ == State::kMethod) {
    if (c == ' ' && !token_.empty()) {
      head_.method = std::exchange(token_, {});
      state_ = State::kTarget;
    } else if (!is_token_char(c) || token_.size() == kMaxMethod) {
      fail(400, "the method is not valid");
    } else {
      token_.push_back(c);
    }
  } else if (state_ == State::kTarget) {
    if (c == ' ' && !target_.empty()) {
      state_ = State::kVersion;
    } else if (!is_target_char(c)) {
      fail(400, "the request target is not valid");
    } else {
      target_.push_back(c);
    }
  } else if (token_.size() < kVersionPrefix.size()) {
    if (c != kVersionPrefix[token_.size()]) return fail(400, "the HTTP version is not 1.0 or 1.1");
    token_.push_back(c);
  } else if (token_.size() == kVersionPrefix.size()) {
    if (c != '0' && c != '1') return fail(400, "the HTTP version is not 1.0 or 1.1");
    head_.minor_version = static_cast<uint8_t>(c - '0');
    token_.push_back(c);
  } else {
    if (c != '\r') return fail(400, "a line does not end with CRLF");
    token_.clear();
    state_ = State::kVersionCr;
  }
}

void HeadParser::take_field(char c) {
  if (state_ == State::kLine) {
    if (c == '\r') {
      state_ = State::kEndCr;
      return;
    }
    if (head_.headers.size() == limits_.fields) return fail(431, "too many header fields");
    head_.headers.emplace_back();
    state_ = State::kName;
  }
  if (state_ == State::kName) {
    std::string& name = head_.headers.back().name;
    if (c == ':' && !name.empty()) {
      state_ = State::kValue;
    } else if (!is_token_char(c)) {  // a space at the start of a line, an obs-fold, too
      fail(400, "a header field's name is not valid");
    } else {
      name.push_back(c >= 'A' && c <= 'Z' ? static_cast<char>(c - 'A' + 'a') : c);
    }
  } else if (c == '\r') {
    state_ = State::kValueCr;
  } else if (!is_value_char(c)) {
    fail(400, "a header field's value is not valid");
  } else {
    token_.push_back(c);
  }
}

void HeadParser::finish_field() {
  head_.headers.back().value = std::string(trimmed(token_));
  token_.clear();
}

void HeadParser::finish() {
  state_ = State::kDone;
  finish_target();
  if (state_ == State::kDone) check_host();
  if (state_ == State::kDone) finish_framing();
  if (state_ != State::kDone) return;
  bool close = false, keep = false;
  for (const Header& header : head_.headers) {
    if (header.name == "connection") {
      close |= list_has_token(header.value, "close");
      keep |= list_has_token(header.value, "keep-alive");
    } else if (header.name == "expect") {
      if (!equals_ignoring_case(header.value, "100-continue")) {
        return fail(417, "the only expectation that can be met is 100-continue");
      }
      head_.expects_continue = head_.minor_version == 1;
    }
  }
  head_.keep_alive = !close && (head_.minor_version == 1 || keep);
}

void HeadParser::finish_target() {
  std::string_view target = target_;
  if (target == "*") {
    head_.path = target_;
    if (head_.method != "OPTIONS") fail(400, "the request target is not valid");
    return;
  }
  if (const size_t scheme = target.find("://"); !target.starts_with('/')) {
    const std::string_view name = target.substr(0, std::min(scheme, target.size()));
    if (scheme == std::string_view::npos ||
        (!equals_ignoring_case(name, "http") && !equals_ignoring_case(name, "https"))) {
      return fail(400, "the request target is not valid");
    }
    target.remove_prefix(scheme + 3);
    const std::string_view authority = target.substr(0, target.find_first_of("/?"));
    if (authority.empty() || !is_authority(authority)) {
      return fail(400, "the request target is not valid");
    }
    head_.target_authority = std::string(authority);
    target.remove_prefix(authority.size());
  }
  const size_t question = std::min(target.find('?'), target.size());
  head_.path = std::string(target.substr(0, question));
  if (head_.path.empty()) head_.path.push_back('/');
  if (question < target.size()) head_.query = std::string(target.substr(question + 1));
  if (!percent_decoded(head_.path)) fail(400, "the request target is not valid");
}

void HeadParser::check_host() {
  size_t hosts = 0;
  for (const Header& header : head_.headers) {
    if (header.name != "host") continue;
    ++hosts;
    if (!is_authority(header.value)) return fail(400, "the Host field is not valid");
  }
  const bool may_lack_host = limits_.takes_http10_without_host && head_.minor_version == 0;
  if (hosts != 1 && !(hosts == 0 && may_lack_host))
    fail(400, "a request needs exactly one Host field");
}

void HeadParser::finish_framing() {
  const Header* length = nullptr;
  const Header* encoding = nullptr;
  for (const Header& header : head_.headers) {
    const bool is_length = header.name == "content-length";
    if (!is_length && header.name != "transfer-encoding") continue;
    if (length != nullptr || encoding != nullptr) {
      return fail(400, "the length of the body is given more than once");
    }
    (is_length ? length : encoding) = &header;
  }
  if (encoding != nullptr) {
    if (head_.minor_version == 0 || !equals_ignoring_case(encoding->value, "chunked")) {
      return fail(400, "the only transfer encoding is chunked");
    }
    head_.framing = Framing::kChunked;
  } else if (length != nullptr) {
    const std::string& text = length->value;
    const char* end = text.data() + text.size();
    const auto parsed = std::from_chars(text.data(), end, head_.content_length);
    if (!is_digits(text) || parsed.ec != std::errc() || parsed.ptr != end) {
      return fail(400, "the Content-Length is not valid");
    }
    head_.framing = Framing::kLength;
  }
}

void HeadParser::fail(int status, std::string_view message) {
  state_ = State::kFailed;
  fault_ = {status, message};
}

BodyDecoder::BodyDecoder(const RequestHead& head, uint64_t limit_bytes)
    : state_(State::kDone), left_(0), room_(limit_bytes) {
  if (head.framing == Framing::kChunked) state_ = State::kSize;
  if (head.framing == Framing::kLength && head.content_length > 0) {
    state_ = State::kData;
    left_ = head.content_length;
    if (left_ > room_) fail(413, kTooLarge);
  }
}

ParseState BodyDecoder::state() const {
  if (state_ == State::kFailed) return ParseState::kFailed;
  return state_ == State::kDone ? ParseState::kDone : ParseState::kNeedMore;
}

BodyDecoder::Step BodyDecoder::advance(std::string_view bytes) {
  Step step{state(), 0, {}};
  while (step.consumed < bytes.size() && state_ < State::kDone) {
    if (state_ == State::kData || state_ == State::kChunk) {
      step.piece = take_data(bytes.substr(step.consumed));
      step.consumed += step.piece.size();
      break;
    }
    take(bytes[step.consumed++]);
  }
  step.state = state();
  return step;
}

std::string_view BodyDecoder::take_data(std::string_view bytes) {
  const std::string_view piece = bytes.substr(0, std::min<uint64_t>(left_, bytes.size()));
  left_ -= piece.size();
  if (left_ == 0) state_ = state_ == State::kData ? State::kDone : State::kChunkCr;
  return piece;
}

void BodyDecoder::take(char c) {
  switch (state_) {
    case State::kSize:
      return take_size(c);
    case State::kExtensionName:
    case State::kExtensionValue:
    case State::kQuoted:
    case State::kQuotedEscape:
    case State::kAfterQuoted:
      return take_extension(c);
    case State::kSizeLf:
      if (c != '\n') return fail(400, kBadChunk);
      return end_size_line();
    case State::kChunkCr:
      if (c != '\r') return fail(400, kBadChunk);
      state_ = State::kChunkLf;
      return;
    case State::kChunkLf:
      if (c != '\n') return fail(400, kBadChunk);
      state_ = State::kSize;
      return;
    case State::kTrailerLine:
    case State::kTrailerName:
    case State::kTrailerValue:
    case State::kTrailerLf:
      return take_trailer(c);
    case State::kEndLf:
      if (c != '\n') return fail(400, kBadChunk);
      state_ = State::kDone;
      return;
    case State::kData:
    case State::kChunk:
    case State::kDone:
    case State::kFailed:
      return;
  }
}

void BodyDecoder::take_size(char c) {
  if (const int digit = hex_digit(c); digit >= 0) {
    if (++digits_ > kMaxSizeDigits) return fail(413, kTooLarge);
    left_ = left_ * 16 + static_cast<uint64_t>(digit);
  } else if (digits_ > 0 && c == '\r') {
    state_ = State::kSizeLf;
  } else if (digits_ > 0 && c == ';') {
    state_ = State::kExtensionName;
    length_ = 0;
  } else {
    fail(400, kBadChunk);
  }
}

// *( ";" token [ "=" ( token / quoted-string ) ] ), without the spaces that old grammars allowed.
void BodyDecoder::take_extension(char c) {
  if (++overhead_ > kMaxOverhead) return fail(413, kTooLarge);
  const bool ends = c == ';' || c == '\r';
  if (state_ == State::kQuotedEscape) {
    if (!is_value_char(c)) return fail(400, kBadChunk);
    state_ = State::kQuoted;
  } else if (state_ == State::kQuoted) {
    if (c == '"') {
      state_ = State::kAfterQuoted;
    } else if (c == '\\') {
      state_ = State::kQuotedEscape;
    } else if (!is_value_char(c)) {
      fail(400, kBadChunk);
    }
  } else if (ends && (length_ > 0 || state_ == State::kAfterQuoted)) {
    state_ = c == ';' ? State::kExtensionName : State::kSizeLf;
    length_ = 0;
  } else if (state_ == State::kExtensionName && c == '=' && length_ > 0) {
    state_ = State::kExtensionValue;
    length_ = 0;
  } else if (state_ == State::kExtensionValue && c == '"' && length_ == 0) {
    state_ = State::kQuoted;
  } else if (state_ == State::kAfterQuoted || !is_token_char(c)) {
    fail(400, kBadChunk);
  } else {
    ++length_;
  }
}

void BodyDecoder::end_size_line() {
  digits_ = 0;
  if (left_ == 0) {
    state_ = State::kTrailerLine;
  } else if (left_ > room_) {
    fail(413, kTooLarge);
  } else {
    room_ -= left_;
    state_ = State::kChunk;
  }
}

void BodyDecoder::take_trailer(char c) {
  if (++overhead_ > kMaxOverhead) return fail(431, "the body's trailer is too large");
  if (state_ == State::kTrailerLine) {
    if (c == '\r') {
      state_ = State::kEndLf;
      return;
    }
    state_ = State::kTrailerName;
    length_ = 0;
  }
  if (state_ == State::kTrailerName) {
    if (c == ':' && length_ > 0) {
      state_ = State::kTrailerValue;
    } else if (!is_token_char(c)) {
      fail(400, "a header field's name is not valid");
    }
    ++length_;
  } else if (state_ == State::kTrailerLf) {
    if (c != '\n') return fail(400, "a line does not end with CRLF");
    state_ = State::kTrailerLine;
  } else if (c == '\r') {
    state_ = State::kTrailerLf;
  } else if (!is_value_char(c)) {
    fail(400, "a header field's value is not valid");
  }
}

void BodyDecoder::fail(int status, std::string_view message) {
  state_ = State::kFailed;
  fault_ = {status, message};
}

}  // namespace skein::http
