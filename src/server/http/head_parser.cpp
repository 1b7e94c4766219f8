#include "server/http/head_parser.h"

#include <algorithm>
#include <charconv>
#include <utility>

namespace skein::http {
namespace {

constexpr size_t kMaxMethod = 32;
constexpr std::string_view kVersionPrefix = "HTTP/1.";

// What may stand in a target: visible ASCII. A fragment is the client's own business and has no
// place in a request.
bool is_target_char(char c) {
  return c > 0x20 && c < 0x7F && c != '#';
}

bool is_value_char(char c) {
  return c == '\t' || (static_cast<uint8_t>(c) >= 0x20 && c != 0x7F);
}

bool is_digits(std::string_view text) {
  return !text.empty() &&
         std::all_of(text.begin(), text.end(), [](char c) { return c >= '0' && c <= '9'; });
}

bool is_name_char(char c) {
  return is_token_char(c) || c == '(' || c == ')' || c == ';' || c == '=';
}

// host [":" port], where a host is a name, an IPv4 address or an IPv6 address in brackets.
bool is_authority(std::string_view text) {
  size_t end = 0;
  if (text.starts_with('[')) {
    end = text.find(']');
    if (end == std::string_view::npos || end < 3) return false;
    const std::string_view address = text.substr(1, end - 1);
    if (!std::all_of(address.begin(), address.end(),
                     [](char c) { return hex_digit(c) >= 0 || c == ':' || c == '.'; })) {
      return false;
    }
    ++end;
  } else {
    while (end < text.size() && is_name_char(text[end])) ++end;
  }
  const std::string_view port = text.substr(end);
  return port.empty() || (port.front() == ':' && port.size() <= 6 &&
                          (port.size() == 1 || is_digits(port.substr(1))));
}

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
  if (hosts != 1) fail(400, "a request needs exactly one Host field");
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

}  // namespace skein::http
