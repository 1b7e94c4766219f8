#include <algorithm>
#include <utility>

#include "dialog/call_body.h"
#include "dialog/json_scanner.h"

namespace skein::dialog {
namespace {

std::string_view trimmed(std::string_view text) {
  while (!text.empty() && is_space(static_cast<unsigned char>(text.front()))) text.remove_prefix(1);
  while (!text.empty() && is_space(static_cast<unsigned char>(text.back()))) text.remove_suffix(1);
  return text;
}

std::string_view leading_space(std::string_view text) {
  const size_t end = text.find_first_not_of(" \t\r\n");
  return text.substr(0, end);
}

std::string_view trailing_space(std::string_view text) {
  const size_t last = text.find_last_not_of(" \t\r\n");
  return last == std::string_view::npos ? text : text.substr(last + 1);
}

// Units are appended to held_, and read from its front as far as they are clear.
class TaggedBody : public CallBody {
 public:
  TaggedBody(const CallFormat& format, const Markers& markers, const ToolTypes& tools)
      : markers_(markers), tools_(tools) {
    const std::string_view body = format.body;
    const size_t name = body.find(kNamePlace), arguments = body.find(kArgumentsPlace);
    name_end_ = markers.pattern(body.substr(name + 1, arguments - name - 1));
    close_ = markers.pattern(std::string(body.substr(arguments + 1)) + format.call_end);
    key_begin_ = markers.pattern(format.key_begin);
    key_end_ = markers.pattern(format.key_end);
    key_end_other_ = markers.pattern(format.key_end_other);
    value_end_ = markers.pattern(format.value_end);
    value_space_ = trailing_space(format.key_end);
    for (const char c : leading_space(format.value_end)) {
      spaced_value_end_.push_back(static_cast<unsigned char>(c));
    }
    spaced_value_end_.insert(spaced_value_end_.end(), value_end_.begin(), value_end_.end());
  }

  Take take(Unit unit, CallOutput& out) override {
    held_.push_back(unit);
    while (true) {
      const Take taken = step(false, out);
      if (taken != Take::kEnded || state_ == State::kEnd) return taken;
    }
  }

  // A close that is cut short counts: its beginning can be nothing else.
  bool finish(CallOutput& out) override {
    while (step(true, out) == Take::kEnded && state_ != State::kEnd) {
    }
    if (state_ == State::kArguments && !held_.empty() && fit(close_, held_).fit == Fit::kPart &&
        fit(key_begin_, held_).fit == Fit::kNo) {
      close(out);
    }
    return state_ == State::kEnd;
  }

 private:
  static constexpr size_t kMaxKey = 256;
  static constexpr size_t kMaxSpace = 64;  // between the end of a value and what follows
  enum class State : uint8_t { kName, kNameEnd, kArguments, kKey, kValue, kEnd };

  // kEnded: something was read, and there may be more; kTaken: the next unit is needed.
  Take step(bool last, CallOutput& out) {
    switch (state_) {
      case State::kName:
        return step_name();
      case State::kNameEnd:
        return step_name_end();
      case State::kArguments:
        return step_arguments(out);
      case State::kKey:
        return step_key();
      case State::kValue:
        return step_value(last, out);
      case State::kEnd:
        break;
    }
    return Take::kTaken;
  }

  void drop(size_t count) { held_.erase(held_.begin(), held_.begin() + static_cast<long>(count)); }
  void skip_space() {
    drop(static_cast<size_t>(std::find_if_not(held_.begin(), held_.end(), is_space) -
                             held_.begin()));
  }

  Take step_name() {
    if (name_.empty()) skip_space();
    if (held_.empty()) return Take::kTaken;
    const std::string one(1, static_cast<char>(held_[0]));
    if (held_[0] < kFirstMarker && is_tool_name(one)) {
      name_ += one;
      drop(1);
      return name_.size() <= kMaxToolName ? Take::kEnded : Take::kRefused;
    }
    if (name_.empty()) return Take::kRefused;
    state_ = State::kNameEnd;
    return Take::kEnded;
  }

  Take step_name_end() {
    if (!tools_.may_be(name_)) return Take::kRefused;
    if (!name_end_.empty()) {
      const FitResult fits = fit(name_end_, held_);
      if (fits.fit != Fit::kFull) return fits.fit == Fit::kPart ? Take::kTaken : Take::kRefused;
      drop(fits.length);
    }
    state_ = State::kArguments;
    return Take::kEnded;
  }

  // A word behind a marker is a call only if an argument or the end of the call follows it: where
  // nothing but white space ends a name, any text would be one.
  void begin_call(CallOutput& out) {
    if (!std::exchange(has_begun_, true)) out.name = name_;
  }

  Take step_arguments(CallOutput& out) {
    skip_space();
    if (held_.empty()) return Take::kTaken;
    const FitResult key = fit(key_begin_, held_), close_fit = fit(close_, held_);
    if (key.fit == Fit::kFull) {
      begin_call(out);
      drop(key.length);
      key_.clear();
      state_ = State::kKey;
      return Take::kEnded;
    }
    if (close_fit.fit == Fit::kFull) {
      drop(close_fit.length);
      close(out);
      return Take::kEnded;
    }
    const bool part = key.fit == Fit::kPart || close_fit.fit == Fit::kPart;
    return part ? Take::kTaken : Take::kRefused;
  }

  void close(CallOutput& out) {
    begin_call(out);
    out.arguments += any_ ? "}" : "{}";
    held_.clear();
    state_ = State::kEnd;
  }

  Take step_key() {
    if (held_.empty()) return Take::kTaken;
    const FitResult end = fit(key_end_, held_), other = fit(key_end_other_, held_);
    if (end.fit == Fit::kFull || other.fit == Fit::kFull) {
      const bool told = !key_end_other_.empty();
      type_ = !told                   ? tools_.type(name_, key_)
              : end.fit == Fit::kFull ? ValueType::kString
                                      : ValueType::kOther;
      drop(end.fit == Fit::kFull ? end.length : other.length);
      value_.clear();
      space_at_ = 0;
      value_begun_ = false;
      state_ = State::kValue;
      return Take::kEnded;
    }
    if (end.fit == Fit::kPart || other.fit == Fit::kPart) return Take::kTaken;
    // Never in the middle of a character, whose rest would be text.
    if (key_.size() >= kMaxKey && (held_[0] & 0xC0U) != 0x80) return Take::kRefused;
    markers_.append_spelling(held_[0], key_);
    drop(1);
    return Take::kEnded;
  }

  // Whether the value ends at the front of held_, and how many units its end takes. An end counts
  // only where another argument or the end of the call follows: a text may quote a tag.
  FitResult value_ends(bool last) const {
    for (const Pattern* pattern : {&spaced_value_end_, &value_end_}) {
      const FitResult fits = fit(*pattern, held_);
      if (fits.fit == Fit::kPart) return fits;
      if (fits.fit == Fit::kNo) continue;
      auto rest = std::span<const Unit>(held_).subspan(fits.length);
      size_t spaces = 0;
      while (spaces < rest.size() && is_space(rest[spaces])) ++spaces;
      if (spaces > kMaxSpace) continue;
      rest = rest.subspan(spaces);
      const Fit key = fit(key_begin_, rest).fit, close = fit(close_, rest).fit;
      if (key == Fit::kFull || close == Fit::kFull) return fits;
      if (key == Fit::kPart || close == Fit::kPart)
        return {last ? Fit::kFull : Fit::kPart, fits.length};
    }
    return {Fit::kNo};
  }

  Take step_value(bool last, CallOutput& out) {
    if (held_.empty()) return Take::kTaken;
    if (!value_begun_ && space_at_ < value_space_.size() &&
        held_[0] == static_cast<unsigned char>(value_space_[space_at_])) {
      ++space_at_;
      drop(1);
      return Take::kEnded;
    }
    const FitResult ends = value_ends(last);
    if (ends.fit == Fit::kPart) return Take::kTaken;
    begin_value(out);
    if (ends.fit == Fit::kFull) {
      drop(ends.length);
      end_value(out);
      state_ = State::kArguments;
      return Take::kEnded;
    }
    std::string text;
    markers_.append_text(held_[0], text);
    drop(1);
    if (type_ == ValueType::kString) {
      append_escaped(text, out.arguments);
    } else if (value_ += text; value_.size() > kMaxHeldBytes) {
      // Too long to be looked at as a whole, so it is a text.
      out.arguments.push_back('"');
      append_escaped(value_, out.arguments);
      type_ = ValueType::kString;
    }
    return Take::kEnded;
  }

  void begin_value(CallOutput& out) {
    if (value_begun_) return;
    value_begun_ = true;
    out.arguments += any_ ? ", \"" : "{\"";
    any_ = true;
    append_escaped(key_, out.arguments);
    out.arguments += "\": ";
    if (type_ == ValueType::kString) out.arguments.push_back('"');
  }

  void end_value(CallOutput& out) {
    if (type_ == ValueType::kString) {
      out.arguments.push_back('"');
      return;
    }
    const std::string_view value = trimmed(value_);
    if (is_whole_json(value)) {
      out.arguments += value;
    } else if (value == "True" || value == "False") {
      out.arguments += value == "True" ? "true" : "false";
    } else if (value == "None") {
      out.arguments += "null";
    } else {
      out.arguments.push_back('"');
      append_escaped(value_, out.arguments);
      out.arguments.push_back('"');
    }
  }

  const Markers& markers_;
  const ToolTypes& tools_;
  Pattern name_end_, close_, key_begin_, key_end_, key_end_other_, value_end_, spaced_value_end_;
  std::string value_space_;  // that the template writes before a value

  State state_ = State::kName;
  std::vector<Unit> held_;
  std::string name_, key_, value_;
  ValueType type_ = ValueType::kOpen;
  size_t space_at_ = 0;
  bool value_begun_ = false;
  bool has_begun_ = false;
  bool any_ = false;  // an argument has been written
};

}  // namespace

std::unique_ptr<CallBody> tagged_body(const CallFormat& format, const Markers& markers,
                                      const ToolTypes& tools) {
  return std::make_unique<TaggedBody>(format, markers, tools);
}

}  // namespace skein::dialog
