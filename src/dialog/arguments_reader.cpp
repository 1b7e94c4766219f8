#include "dialog/arguments_reader.h"

#include <string_view>

#include "text/utf8.h"

namespace skein::dialog {
namespace {

bool is_space_byte(char c) {
  return c == ' ' || c == '\t' || c == '\n' || c == '\r';
}

Take taken_as(JsonScanner::Step step) {
  switch (step) {
    case JsonScanner::Step::kTaken:
      return Take::kTaken;
    case JsonScanner::Step::kEnded:
      return Take::kEnded;
    default:
      return Take::kRefused;  // an object and null show their ends themselves
  }
}

}  // namespace

void StringDecoder::push(char byte, std::string& out) {
  if (hex_left_ > 0) return push_hex(byte, out);
  if (!escape_) {
    escape_ = byte == '\\';
    if (!escape_) push_plain(byte, out);
    return;
  }
  escape_ = false;
  if (byte == 'u') {
    hex_left_ = 4;
    return;
  }
  constexpr std::string_view from = "bfnrt", to = "\b\f\n\r\t";
  const size_t at = from.find(byte);
  push_plain(at == std::string_view::npos ? byte : to[at], out);
}

void StringDecoder::push_plain(char byte, std::string& out) {
  drop_half(out);
  out.push_back(byte);
}

void StringDecoder::drop_half(std::string& out) {
  if (high_ != 0) out += kReplacementUtf8;
  high_ = 0;
}

void StringDecoder::push_hex(char byte, std::string& out) {
  const int digit = byte <= '9' ? byte - '0' : (byte | 0x20) - 'a' + 10;
  code_ = code_ * 16 + static_cast<char32_t>(digit);
  if (--hex_left_ > 0) return;
  const char32_t code = code_;
  code_ = 0;
  const bool low = code >= 0xDC00 && code < 0xE000;
  if (low && high_ != 0) {
    append_utf8(0x10000 + ((high_ - 0xD800) << 10) + (code - 0xDC00), out);
    high_ = 0;
    return;
  }
  drop_half(out);
  if (code >= 0xD800 && code < 0xDC00) {
    high_ = code;
  } else if (low) {
    out += kReplacementUtf8;
  } else {
    append_utf8(code, out);
  }
}

Take ArgumentsReader::take(char byte, std::string& out) {
  if (kind_ == Kind::kNone) {
    if (is_space_byte(byte)) return Take::kTaken;
    kind_ = byte == '{'   ? Kind::kObject
            : byte == '"' ? Kind::kText
            : byte == 'n' ? Kind::kNull
                          : Kind::kRefused;
    if (kind_ == Kind::kText) return taken_as(outer_.push(byte));
  }
  switch (kind_) {
    case Kind::kObject: {
      const Take taken = taken_as(outer_.push(byte));
      if (taken != Take::kRefused) out.push_back(byte);
      return taken;
    }
    case Kind::kNull: {
      const Take taken = taken_as(outer_.push(byte));
      if (taken == Take::kEnded) out += "{}";
      return taken;
    }
    case Kind::kText:
      return take_text(byte, out);
    default:
      return Take::kRefused;
  }
}

Take ArgumentsReader::take_text(char byte, std::string& out) {
  const Take taken = taken_as(outer_.push(byte));
  if (taken == Take::kRefused) return taken;
  if (taken == Take::kEnded) {
    if (!begun_) out += "{}";  // an empty text
    return !begun_ || inner_.finish() ? Take::kEnded : Take::kRefused;
  }
  std::string text;
  decoder_.push(byte, text);
  for (const char c : text) {
    if (is_space_byte(c) && (!begun_ || inner_.finish())) continue;
    if (!begun_ && c != '{') return Take::kRefused;
    begun_ = true;
    if (inner_.finish() || inner_.push(c) == JsonScanner::Step::kRefused) return Take::kRefused;
    out.push_back(c);
  }
  return Take::kTaken;
}

}  // namespace skein::dialog
