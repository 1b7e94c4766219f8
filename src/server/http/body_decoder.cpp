#include "server/http/body_decoder.h"

#include <algorithm>

namespace skein::http {
namespace {

constexpr uint32_t kMaxOverhead = 16 << 10;
constexpr uint32_t kMaxSizeDigits = 15;  // cannot overflow

constexpr std::string_view kTooLarge = "the request's body is too large";
constexpr std::string_view kBadChunk = "a chunk of the body is not valid";

}  // namespace

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
  } else if (digits_ == 0) {
    fail(400, kBadChunk);
  } else if (c == '\r') {
    state_ = State::kSizeLf;
  } else if (c == ';') {
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
    if (c != '\t' && (static_cast<uint8_t>(c) < 0x20 || c == 0x7F)) return fail(400, kBadChunk);
    state_ = State::kQuoted;
  } else if (state_ == State::kQuoted) {
    if (c == '"') {
      state_ = State::kAfterQuoted;
    } else if (c == '\\') {
      state_ = State::kQuotedEscape;
    } else if (c != '\t' && (static_cast<uint8_t>(c) < 0x20 || c == 0x7F)) {
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
  } else if (c != '\t' && (static_cast<uint8_t>(c) < 0x20 || c == 0x7F)) {
    fail(400, "a header field's value is not valid");
  }
}

void BodyDecoder::fail(int status, std::string_view message) {
  state_ = State::kFailed;
  fault_ = {status, message};
}

}  // namespace skein::http
