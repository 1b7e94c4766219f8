#include "dialog/call_body.h"

#include <algorithm>
#include <fmt/format.h>

#include "dialog/arguments_reader.h"
#include "dialog/json_scanner.h"
#include "text/json_text.h"

namespace skein::dialog {
namespace {

bool is_name_char(char c) {
  return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '_' ||
         c == '.' || c == ':' || c == '-';
}

class JsonBody : public CallBody {
 public:
  JsonBody(const CallFormat& format, const Markers& markers, const ToolTypes& tools,
           bool only_known)
      : format_(format), markers_(markers), tools_(tools), only_known_(only_known) {}

  Take take(Unit unit, CallOutput& out) override {
    if (unit < kFirstMarker) return take_byte(static_cast<char>(unit), out);
    std::string text;  // a marker inside a string
    markers_.append_text(unit, text);
    Take taken = Take::kRefused;
    for (const char c : text) {
      taken = take_byte(c, out);
      if (taken != Take::kTaken) return Take::kRefused;
    }
    return taken;
  }

  bool finish(CallOutput&) override { return false; }

 private:
  enum class State : uint8_t {
    kOpen,
    kFirstKey,
    kKey,
    kInKey,
    kColon,
    kName,
    kArguments,
    kOther,
    kBehind
  };

  Take take_byte(char byte, CallOutput& out) {
    const bool space = is_space(static_cast<unsigned char>(byte));
    switch (state_) {
      case State::kOpen:
        if (space) return Take::kTaken;
        return go(byte == '{', State::kFirstKey);
      case State::kFirstKey:
      case State::kKey:
        if (space) return Take::kTaken;
        if (byte == '}' && state_ == State::kFirstKey) return end(out);
        return begin_scan(byte, byte == '"', State::kInKey);
      case State::kInKey:
        return take_key(byte);
      case State::kColon:
        if (space) return Take::kTaken;
        return byte == ':' ? begin_value() : Take::kRefused;
      case State::kName:
        return take_name(byte, out);
      case State::kArguments:
        return take_arguments(byte, out);
      case State::kOther:
        return take_other(byte, out);
      case State::kBehind:
        if (space) return Take::kTaken;
        if (byte == '}') return end(out);
        return go(byte == ',', State::kKey);
    }
    return Take::kRefused;
  }

  Take go(bool right, State state) {
    state_ = state;
    return right ? Take::kTaken : Take::kRefused;
  }
  Take begin_scan(char byte, bool right, State state) {
    scanner_ = JsonScanner();
    text_.assign(1, byte);
    scanner_.push(byte);
    return go(right, state);
  }
  Take take_key(char byte) {
    text_.push_back(byte);
    // Never in the middle of a character, whose rest would be text.
    const bool begins = (static_cast<unsigned char>(byte) & 0xC0U) != 0x80;
    if (begins && text_.size() > kMaxToolName + 2) return Take::kRefused;
    const JsonScanner::Step step = scanner_.push(byte);
    if (step == JsonScanner::Step::kEnded) state_ = State::kColon;
    return step == JsonScanner::Step::kRefused ? Take::kRefused : Take::kTaken;
  }
  Take begin_value() {
    const std::string_view key = std::string_view(text_).substr(1, text_.size() - 2);
    const bool name = key == format_.name_key, arguments = key == format_.arguments_key;
    if ((name && has_name_) || (arguments && has_arguments_)) return Take::kRefused;
    has_name_ |= name;
    has_arguments_ |= arguments;
    state_ = name ? State::kName : arguments ? State::kArguments : State::kOther;
    scanner_ = JsonScanner();
    text_.clear();
    return Take::kTaken;
  }
  Take take_name(char byte, CallOutput& out) {
    if (text_.empty() && is_space(static_cast<unsigned char>(byte))) return Take::kTaken;
    if (text_.empty() && byte != '"') return Take::kRefused;
    text_.push_back(byte);
    const JsonScanner::Step step = scanner_.push(byte);
    if (step != JsonScanner::Step::kEnded) {
      return step == JsonScanner::Step::kTaken && text_.size() <= kMaxToolName + 2 ? Take::kTaken
                                                                                   : Take::kRefused;
    }
    out.name = text_.substr(1, text_.size() - 2);
    if (!is_tool_name(out.name) || (only_known_ && !tools_.has(out.name))) {
      out.name.clear();
      return Take::kRefused;
    }
    named_ = true;
    out.arguments += held_;
    held_.clear();
    state_ = State::kBehind;
    return Take::kTaken;
  }
  Take take_arguments(char byte, CallOutput& out) {
    std::string& into = named_ ? out.arguments : held_;
    const Take taken = arguments_.take(byte, into);
    if (taken == Take::kEnded) state_ = State::kBehind;
    if (held_.size() > kMaxHeldBytes) return Take::kRefused;
    return taken == Take::kEnded ? Take::kTaken : taken;
  }
  Take take_other(char byte, CallOutput& out) {
    switch (scanner_.push(byte)) {
      case JsonScanner::Step::kTaken:
        return Take::kTaken;
      case JsonScanner::Step::kEnded:
        state_ = State::kBehind;
        return Take::kTaken;
      case JsonScanner::Step::kEndedBefore:
        state_ = State::kBehind;
        return take_byte(byte, out);
      default:
        return Take::kRefused;
    }
  }
  Take end(CallOutput& out) {
    if (!named_) return Take::kRefused;
    if (!has_arguments_) out.arguments += "{}";
    return Take::kEnded;
  }

  const CallFormat& format_;
  const Markers& markers_;
  const ToolTypes& tools_;
  const bool only_known_;
  State state_ = State::kOpen;
  JsonScanner scanner_;
  std::string text_;  // of a key or of the name
  ArgumentsReader arguments_;
  std::string held_;  // arguments that came before the name
  bool has_name_ = false, has_arguments_ = false, named_ = false;
};

std::string without_space(std::string_view text) {
  std::string out;
  std::copy_if(text.begin(), text.end(), std::back_inserter(out),
               [](char c) { return !is_space(static_cast<unsigned char>(c)); });
  return out;
}

// `text` is what the template `middle` writes, whatever index and id.
bool is_middle(std::string_view text, std::string_view middle) {
  for (const char c : middle) {
    const bool index = c == kIndexPlace;
    if (!index && c != kIdPlace) {
      if (text.empty() || text[0] != c) return false;
      text.remove_prefix(1);
      continue;
    }
    size_t length = 0;
    while (length < text.size() && is_name_char(text[length]) &&
           (!index || (text[length] >= '0' && text[length] <= '9'))) {
      ++length;
    }
    if (length == 0) return false;
    text.remove_prefix(length);
  }
  return text.empty();
}

class NameJsonBody : public CallBody {
 public:
  NameJsonBody(const CallFormat& format, const Markers& markers) : markers_(markers) {
    const size_t name = format.body.find(kNamePlace), arguments = format.body.find(kArgumentsPlace);
    middle_ = without_space(std::string_view(format.body).substr(name + 1, arguments - name - 1));
  }

  Take take(Unit unit, CallOutput& out) override {
    if (named_) return take_arguments(unit, out);
    if (unit == '{' && !header_.empty())
      return begin(out) ? take_arguments(unit, out) : Take::kRefused;
    if (!is_space(unit)) markers_.append_spelling(unit, header_);
    return header_.size() <= kMaxHeader ? Take::kTaken : Take::kRefused;
  }
  bool finish(CallOutput&) override { return false; }

 private:
  static constexpr size_t kMaxHeader = 2 * kMaxToolName;

  bool begin(CallOutput& out) {
    for (size_t length = std::min(header_.size(), kMaxToolName); length > 0; --length) {
      const std::string_view name = std::string_view(header_).substr(0, length);
      if (!is_tool_name(name) || !is_middle(std::string_view(header_).substr(length), middle_)) {
        continue;
      }
      out.name = name;
      named_ = true;
      return true;
    }
    return false;
  }
  Take take_arguments(Unit unit, CallOutput& out) {
    std::string text;
    markers_.append_text(unit, text);
    Take taken = Take::kRefused;
    for (size_t i = 0; i < text.size(); ++i) {
      taken = arguments_.take(text[i], out.arguments);
      if (taken != Take::kTaken && i + 1 < text.size()) return Take::kRefused;
    }
    return taken;
  }

  const Markers& markers_;
  std::string middle_;
  std::string header_;
  bool named_ = false;
  ArgumentsReader arguments_;
};

}  // namespace

bool is_tool_name(std::string_view name) {
  return !name.empty() && name.size() <= kMaxToolName &&
         std::all_of(name.begin(), name.end(), is_name_char);
}

void append_escaped(std::string_view text, std::string& out) {
  for (const char c : text) {
    constexpr std::string_view from = "\"\\\b\f\n\r\t", to = "\"\\bfnrt";
    if (const size_t at = from.find(c); at != std::string_view::npos) {
      out.push_back('\\');
      out.push_back(to[at]);
    } else if (static_cast<unsigned char>(c) < 0x20) {
      out += fmt::format("\\u{:04x}", static_cast<unsigned char>(c));
    } else {
      out.push_back(c);
    }
  }
}

ToolTypes::ToolTypes(const std::vector<Tool>& tools, bool with_types) {
  for (const Tool& tool : tools) {
    Types& types = tools_[tool.name];
    if (!with_types || !tool.parameters.is_object()) continue;
    const auto properties = tool.parameters.find("properties");
    if (properties == tool.parameters.end() || !properties->is_object()) continue;
    for (const auto& [key, property] : properties->items()) {
      const auto type = property.is_object() ? property.find("type") : property.end();
      if (type == property.end() || !type->is_string()) continue;
      types[key] = says(*type, "string") ? ValueType::kString : ValueType::kOther;
    }
  }
}

ValueType ToolTypes::type(std::string_view tool, const std::string& key) const {
  const auto found = tools_.find(tool);
  if (found == tools_.end()) return ValueType::kOpen;
  const auto type = found->second.find(key);
  return type == found->second.end() ? ValueType::kOpen : type->second;
}

std::unique_ptr<CallBody> json_body(const CallFormat& format, const Markers& markers,
                                    const ToolTypes& tools, bool only_known) {
  return std::make_unique<JsonBody>(format, markers, tools, only_known);
}

std::unique_ptr<CallBody> name_json_body(const CallFormat& format, const Markers& markers) {
  return std::make_unique<NameJsonBody>(format, markers);
}

}  // namespace skein::dialog
