#include "dialog/json_scanner.h"

namespace skein::dialog {
namespace {

bool is_json_space(char c) {
  return c == ' ' || c == '\t' || c == '\n' || c == '\r';
}

bool is_digit(char c) {
  return c >= '0' && c <= '9';
}

}  // namespace

JsonScanner::Step JsonScanner::push(char byte) {
  switch (state_) {
    case State::kEnd:
      return Step::kEndedBefore;
    case State::kString:
    case State::kEscape:
    case State::kHex:
      return push_string(byte);
    case State::kWord:
      return push_word(byte);
    case State::kMinus:
    case State::kZero:
    case State::kDigits:
    case State::kPoint:
    case State::kFraction:
    case State::kExponent:
    case State::kSign:
    case State::kPower:
      return push_number(byte);
    default:
      break;
  }
  if (is_json_space(byte)) return Step::kTaken;
  switch (state_) {
    case State::kFirstItem:
      return byte == ']' ? close(false) : begin_value(byte);
    case State::kFirstKey:
      if (byte == '}') return close(true);
      [[fallthrough]];
    case State::kKey:
      if (byte != '"') return Step::kRefused;
      key_ = true;
      state_ = State::kString;
      return Step::kTaken;
    case State::kColon:
      state_ = State::kValue;
      return byte == ':' ? Step::kTaken : Step::kRefused;
    case State::kBehind:
      return push_behind(byte);
    default:
      return begin_value(byte);
  }
}

JsonScanner::Step JsonScanner::begin_value(char byte) {
  switch (byte) {
    case '{':
      return open(true);
    case '[':
      return open(false);
    case '"':
      key_ = false;
      state_ = State::kString;
      return Step::kTaken;
    case 't':
      word_ = "rue";
      break;
    case 'f':
      word_ = "alse";
      break;
    case 'n':
      word_ = "ull";
      break;
    case '-':
      state_ = State::kMinus;
      return Step::kTaken;
    default:
      if (!is_digit(byte)) return Step::kRefused;
      state_ = byte == '0' ? State::kZero : State::kDigits;
      return Step::kTaken;
  }
  state_ = State::kWord;
  return Step::kTaken;
}

JsonScanner::Step JsonScanner::open(bool object) {
  if (open_.size() == kMaxJsonDepth) return Step::kRefused;
  open_.push_back(object);
  state_ = object ? State::kFirstKey : State::kFirstItem;
  return Step::kTaken;
}

JsonScanner::Step JsonScanner::close(bool object) {
  if (open_.empty() || open_.back() != object) return Step::kRefused;
  open_.pop_back();
  return behind_value();
}

JsonScanner::Step JsonScanner::behind_value() {
  state_ = open_.empty() ? State::kEnd : State::kBehind;
  return open_.empty() ? Step::kEnded : Step::kTaken;
}

JsonScanner::Step JsonScanner::push_behind(char byte) {
  if (byte == '}' || byte == ']') return close(byte == '}');
  if (byte != ',') return Step::kRefused;
  state_ = open_.back() ? State::kKey : State::kValue;
  return Step::kTaken;
}

JsonScanner::Step JsonScanner::push_string(char byte) {
  if (state_ == State::kHex) {
    const bool hex = is_digit(byte) || (byte >= 'a' && byte <= 'f') || (byte >= 'A' && byte <= 'F');
    if (!hex) return Step::kRefused;
    if (--hex_left_ == 0) state_ = State::kString;
    return Step::kTaken;
  }
  if (state_ == State::kEscape) {
    hex_left_ = 4;
    state_ = byte == 'u' ? State::kHex : State::kString;
    const bool known = std::string_view("\"\\/bfnrtu").find(byte) != std::string_view::npos;
    return known ? Step::kTaken : Step::kRefused;
  }
  if (byte == '\\') {
    state_ = State::kEscape;
  } else if (byte == '"') {
    if (!key_) return behind_value();
    state_ = State::kColon;
  } else if (static_cast<unsigned char>(byte) < 0x20) {
    return Step::kRefused;
  }
  return Step::kTaken;
}

JsonScanner::Step JsonScanner::push_word(char byte) {
  if (byte != *word_) return Step::kRefused;
  return *++word_ == '\0' ? behind_value() : Step::kTaken;
}

JsonScanner::Step JsonScanner::push_number(char byte) {
  const bool digit = is_digit(byte);
  const bool whole = state_ == State::kZero || state_ == State::kDigits;
  const State before = state_;
  if (digit && before == State::kMinus) {
    state_ = byte == '0' ? State::kZero : State::kDigits;
  } else if (digit && before != State::kZero) {
    if (before == State::kPoint) state_ = State::kFraction;
    if (before == State::kExponent || before == State::kSign) state_ = State::kPower;
  } else if (byte == '.' && whole) {
    state_ = State::kPoint;
  } else if ((byte == 'e' || byte == 'E') && (whole || before == State::kFraction)) {
    state_ = State::kExponent;
  } else if ((byte == '+' || byte == '-') && before == State::kExponent) {
    state_ = State::kSign;
  } else if (digit || !in_number_end()) {
    return Step::kRefused;
  } else if (behind_value() == Step::kEnded) {
    return Step::kEndedBefore;
  } else {
    return is_json_space(byte) ? Step::kTaken : push_behind(byte);
  }
  return Step::kTaken;
}

bool is_whole_json(std::string_view text) {
  JsonScanner scanner;
  for (const char c : text) {
    const JsonScanner::Step step = scanner.push(c);
    if (step != JsonScanner::Step::kTaken && step != JsonScanner::Step::kEnded) return false;
  }
  return scanner.finish();
}

}  // namespace skein::dialog
