// Calls in a programming language's way, F(K='V', N=7), or almost JSON, F{K:<escape>V<escape>}.
// They are written as JSON as they come.
#include <algorithm>
#include <utility>

#include "dialog/call_body.h"
#include "dialog/json_scanner.h"
#include "text/utf8.h"

namespace skein::dialog {
namespace {

constexpr size_t kMaxWord = 128;  // a number, a constant, a key

class LooseBody : public CallBody {
 public:
  LooseBody(const CallFormat& format, const Markers& markers, const ToolTypes& tools)
      : markers_(markers), tools_(tools), quote_(markers.pattern(format.quote)) {
    const size_t name = format.body.find(kNamePlace);
    open_ = static_cast<unsigned char>(format.body[name + 1]);
  }

  Take take(Unit unit, CallOutput& out) override {
    held_.push_back(unit);
    while (!held_.empty()) {
      const Take taken = step(out);
      if (taken != Take::kEnded) return taken;
      if (state_ == State::kEnd) return Take::kEnded;
    }
    return Take::kTaken;
  }
  bool finish(CallOutput&) override { return false; }

 private:
  enum class State : uint8_t {
    kName,
    kKey,
    kInKey,
    kColon,
    kValue,
    kString,
    kEscape,
    kHex,
    kWord,
    kBehind,
    kEnd
  };

  // kEnded: the front of held_ was read; kTaken: more is needed.
  Take step(CallOutput& out) {
    const Unit unit = held_[0];
    switch (state_) {
      case State::kName:
        return step_name(unit, out);
      case State::kKey:
        return step_key(unit, out);
      case State::kInKey:
        return step_in_key(unit, out);
      case State::kColon:
        if (is_space(unit)) return read();
        out.arguments += ": ";
        state_ = State::kValue;
        return unit == ':' ? read() : Take::kRefused;
      case State::kValue:
        return step_value(unit, out);
      case State::kString:
      case State::kEscape:
      case State::kHex:
        return step_string(unit, out);
      case State::kWord:
        return step_word(unit, out);
      case State::kBehind:
        return step_behind(unit, out);
      case State::kEnd:
        break;
    }
    return Take::kRefused;
  }

  Take read(size_t count = 1) {
    held_.erase(held_.begin(), held_.begin() + static_cast<long>(count));
    return Take::kEnded;
  }

  Take step_name(Unit unit, CallOutput& out) {
    if (is_space(unit)) return word_.empty() ? read() : Take::kRefused;
    if (unit != open_) {
      if (unit >= kFirstMarker || word_.size() == kMaxToolName) return Take::kRefused;
      word_.push_back(static_cast<char>(unit));
      return is_tool_name(word_) ? read() : Take::kRefused;
    }
    if (word_.empty() || !tools_.may_be(word_)) return Take::kRefused;
    out.name = word_;
    out.arguments = "{";
    frames_ = {true};
    begin_frame();
    return read();
  }

  void begin_frame() {
    first_ = true;
    state_ = frames_.back() ? State::kKey : State::kValue;
  }

  Unit closing() const {
    if (frames_.size() == 1) return open_ == '(' ? ')' : '}';
    return frames_.back() ? '}' : ']';
  }

  Take close(CallOutput& out) {
    out.arguments.push_back(frames_.back() ? '}' : ']');
    frames_.pop_back();
    state_ = frames_.empty() ? State::kEnd : State::kBehind;
    return read();
  }

  void separate(CallOutput& out) {
    if (!first_) out.arguments += ", ";
    first_ = false;
  }

  Take step_key(Unit unit, CallOutput& out) {
    if (is_space(unit)) return read();
    if (unit == closing()) return close(out);
    word_.clear();
    if (unit == '"' || unit == '\'') {
      separate(out);
      key_ = true;
      return begin_string(unit, out);
    }
    state_ = State::kInKey;
    return Take::kEnded;
  }

  // Of a word; never in the middle of a character, whose rest would be text.
  bool is_too_long(Unit unit) const { return word_.size() >= kMaxWord && (unit & 0xC0U) != 0x80; }

  // A bare key ends with its colon, or in the outermost frame of a function with '='.
  Take step_in_key(Unit unit, CallOutput& out) {
    const Unit end = frames_.size() == 1 && open_ == '(' ? Unit{'='} : Unit{':'};
    if (unit != end) {
      if (is_too_long(unit) || unit >= kFirstMarker) return Take::kRefused;
      word_.push_back(static_cast<char>(unit));
      return read();
    }
    while (!word_.empty() && is_space(static_cast<unsigned char>(word_.back()))) word_.pop_back();
    if (word_.empty()) return Take::kRefused;
    separate(out);
    out.arguments.push_back('"');
    append_escaped(word_, out.arguments);
    out.arguments += "\": ";
    state_ = State::kValue;
    return read();
  }

  Take begin_string(Unit quote, CallOutput& out) {
    end_quote_ = quote;
    out.arguments.push_back('"');
    state_ = State::kString;
    return read();
  }

  Take step_value(Unit unit, CallOutput& out) {
    if (is_space(unit)) return read();
    const bool list = !frames_.back();
    if (list && unit == ']') return close(out);  // a comma may stand before it
    if (const FitResult fits = fit(quote_, held_); fits.fit != Fit::kNo) {
      if (fits.fit == Fit::kPart) return Take::kTaken;
      if (list) separate(out);
      key_ = false;
      end_quote_ = 0;
      out.arguments.push_back('"');
      state_ = State::kString;
      return read(fits.length);
    }
    if (list) separate(out);
    if (unit == '"' || unit == '\'') {
      key_ = false;
      return begin_string(unit, out);
    }
    if (unit == '{' || unit == '[') {
      if (frames_.size() == kMaxJsonDepth) return Take::kRefused;
      out.arguments.push_back(static_cast<char>(unit));
      frames_.push_back(unit == '{');
      begin_frame();
      return read();
    }
    word_.clear();
    state_ = State::kWord;
    return Take::kEnded;
  }

  Take end_string(CallOutput& out, size_t units) {
    out.arguments.push_back('"');
    state_ = key_ ? State::kColon : State::kBehind;
    return read(units);
  }

  Take step_string(Unit unit, CallOutput& out) {
    if (state_ == State::kHex) return step_hex(unit, out);
    if (state_ == State::kEscape) return step_escape(unit, out);
    if (unit != '\\') drop_half(out);
    if (end_quote_ == 0) {
      const FitResult fits = fit(quote_, held_);
      if (fits.fit == Fit::kPart) return Take::kTaken;
      if (fits.fit == Fit::kFull) return end_string(out, fits.length);
    } else if (unit == end_quote_) {
      return end_string(out, 1);
    } else if (unit == '\\') {
      state_ = State::kEscape;
      return read();
    }
    std::string text;
    markers_.append_text(unit, text);
    append_escaped(text, out.arguments);
    return read();
  }

  Take step_escape(Unit unit, CallOutput& out) {
    state_ = State::kString;
    if (unit == 'u' || unit == 'x' || unit == 'U') {
      hex_left_ = unit == 'u' ? 4 : unit == 'x' ? 2 : 8;
      code_ = 0;
      state_ = State::kHex;
      return read();
    }
    drop_half(out);
    constexpr std::string_view from = "nrtbf\\\"'", to = "\n\r\t\b\f\\\"'";
    const size_t at = unit < 128 ? from.find(static_cast<char>(unit)) : std::string_view::npos;
    if (at == std::string_view::npos) {  // as Python does: the backslash stays
      append_escaped("\\", out.arguments);
      return Take::kEnded;
    }
    append_escaped(to.substr(at, 1), out.arguments);
    return read();
  }

  Take step_hex(Unit unit, CallOutput& out) {
    const Unit lower = unit | 0x20;
    const bool digit = unit >= '0' && unit <= '9', letter = lower >= 'a' && lower <= 'f';
    if (!digit && !letter) return Take::kRefused;
    code_ = code_ * 16 + static_cast<char32_t>(digit ? unit - '0' : lower - 'a' + 10);
    if (--hex_left_ == 0) {
      end_code(out);
      state_ = State::kString;
    }
    return read();
  }

  // Two halves of a pair are one character, as in JSON; a half alone is none.
  void end_code(CallOutput& out) {
    std::string text;
    const bool high = code_ >= 0xD800 && code_ < 0xDC00, low = code_ >= 0xDC00 && code_ < 0xE000;
    if (low && high_ != 0) {
      append_utf8(0x10000 + ((high_ - 0xD800) << 10U) + (code_ - 0xDC00), text);
      high_ = 0;
    } else {
      drop_half(out);
      if (high) {
        high_ = code_;
      } else if (low || code_ > 0x10FFFF) {
        text = kReplacementUtf8;
      } else {
        append_utf8(code_, text);
      }
    }
    append_escaped(text, out.arguments);
  }
  void drop_half(CallOutput& out) {
    if (std::exchange(high_, 0) != 0) out.arguments += kReplacementUtf8;
  }

  Take step_word(Unit unit, CallOutput& out) {
    const bool end = unit == ',' || unit == closing() || is_space(unit);
    if (!end) {
      if (unit >= kFirstMarker || is_too_long(unit)) return Take::kRefused;
      word_.push_back(static_cast<char>(unit));
      return read();
    }
    const std::string_view word = word_ == "True"    ? "true"
                                  : word_ == "False" ? "false"
                                  : word_ == "None"  ? "null"
                                                     : std::string_view(word_);
    if (is_whole_json(word)) {
      out.arguments += word;
    } else {  // a bare word
      out.arguments.push_back('"');
      append_escaped(word, out.arguments);
      out.arguments.push_back('"');
    }
    state_ = State::kBehind;
    return Take::kEnded;
  }

  Take step_behind(Unit unit, CallOutput& out) {
    if (is_space(unit)) return read();
    if (unit == closing()) return close(out);
    first_ = false;
    state_ = frames_.back() ? State::kKey : State::kValue;
    return unit == ',' ? read() : Take::kRefused;
  }

  const Markers& markers_;
  const ToolTypes& tools_;
  Pattern quote_;
  Unit open_ = 0;
  State state_ = State::kName;
  std::vector<Unit> held_;
  std::vector<bool> frames_;  // true: an object
  std::string word_;
  Unit end_quote_ = 0;  // 0: the format's own
  bool key_ = false;    // the string is a key
  bool first_ = true;   // nothing is in the frame yet
  int hex_left_ = 0;
  char32_t code_ = 0, high_ = 0;  // high_: the first half of a pair
};

}  // namespace

std::unique_ptr<CallBody> loose_body(const CallFormat& format, const Markers& markers,
                                     const ToolTypes& tools) {
  return std::make_unique<LooseBody>(format, markers, tools);
}

}  // namespace skein::dialog
