#include "grammar/json_value.h"

#include <algorithm>
#include <charconv>
#include <fmt/format.h>
#include <numeric>
#include <unordered_map>

#include "grammar/char_set.h"

namespace skein::grammar {

class JsonReader {
 public:
  explicit JsonReader(std::string_view text) : text_(text) {}

  bool read(JsonDocument& out) {
    const JsonId root = value(0);
    space();
    if (error_.empty() && at_ < text_.size()) fail("something follows the document");
    static_cast<void>(root);
    out.nodes_ = std::move(nodes_);
    return error_.empty();
  }
  const std::string& error() const { return error_; }
  FormCode code() const { return code_; }

 private:
  using Type = JsonDocument::Type;

  JsonId fail(std::string_view why) {
    if (error_.empty()) error_ = fmt::format("{} at offset {}", why, at_);
    return 0;
  }
  JsonId too_much(std::string why) {
    if (error_.empty()) {
      error_ = std::move(why);
      code_ = FormCode::kTooComplex;
    }
    return 0;
  }
  void space() {
    while (at_ < text_.size() &&
           std::string_view(" \t\r\n").find(text_[at_]) != std::string_view::npos)
      ++at_;
  }
  bool take(std::string_view what) {
    if (text_.substr(at_, what.size()) != what) return false;
    at_ += what.size();
    return true;
  }

  JsonId value(uint32_t depth) {
    space();
    if (!error_.empty()) return 0;
    if (depth > kMaxSchemaDepth) {
      return too_much(fmt::format("JSON nested deeper than {}", kMaxSchemaDepth));
    }
    if (nodes_.size() >= kMaxSchemaNodes) {
      return too_much(fmt::format("more than {} JSON values", kMaxSchemaNodes));
    }
    const auto id = static_cast<JsonId>(nodes_.size());
    nodes_.emplace_back();
    const char c = at_ < text_.size() ? text_[at_] : '\0';
    if (c == '{') return object(id, depth);
    if (c == '[') return array(id, depth);
    if (c == '"') {
      nodes_[id].type = Type::kString;
      std::string text = string();
      nodes_[id].text = std::move(text);
    } else if (take("null")) {
      nodes_[id].type = Type::kNull;
    } else if (take("true")) {
      nodes_[id].type = Type::kTrue;
    } else if (take("false")) {
      nodes_[id].type = Type::kFalse;
    } else {
      number(id);
    }
    return id;
  }

  void number(JsonId id) {
    const size_t begin = at_;
    const auto digits = [&] {
      const size_t from = at_;
      while (at_ < text_.size() && text_[at_] >= '0' && text_[at_] <= '9') ++at_;
      return at_ > from;
    };
    take("-");
    const bool zero = at_ < text_.size() && text_[at_] == '0';
    if (zero) {
      ++at_;
    } else if (!digits()) {
      fail("not a JSON value");
      return;
    }
    if (take(".") && !digits()) fail("no digits behind the point");
    if (at_ < text_.size() && (text_[at_] == 'e' || text_[at_] == 'E')) {
      ++at_;
      if (!take("-")) take("+");
      if (!digits()) fail("no digits in the exponent");
    }
    nodes_[id].type = Type::kNumber;
    nodes_[id].text = std::string(text_.substr(begin, at_ - begin));
  }

  uint32_t hex4() {
    uint32_t value = 0;
    if (text_.size() - at_ < 4) return fail("bad \\u escape"), 0;
    const auto [end, error] = std::from_chars(&text_[at_], &text_[at_] + 4, value, 16);
    if (error != std::errc() || end != &text_[at_] + 4) return fail("bad \\u escape"), 0;
    at_ += 4;
    return value;
  }

  void escape(std::string& out) {
    if (at_ >= text_.size()) return static_cast<void>(fail("unterminated string"));
    const char c = text_[at_++];
    constexpr std::string_view kFrom = "\"\\/bfnrt", kTo = "\"\\/\b\f\n\r\t";
    if (const size_t found = kFrom.find(c); found != std::string_view::npos) {
      out += kTo[found];
      return;
    }
    if (c != 'u') return static_cast<void>(fail("bad escape"));
    uint32_t code = hex4();
    if (code >= 0xD800 && code <= 0xDBFF && take("\\u")) {
      const uint32_t low = hex4();
      if (low < 0xDC00 || low > 0xDFFF) return static_cast<void>(fail("lone surrogate"));
      code = 0x10000 + ((code - 0xD800) << 10) + (low - 0xDC00);
    } else if (code >= 0xD800 && code <= 0xDFFF) {
      return static_cast<void>(fail("lone surrogate"));
    }
    append_utf8(out, code);
  }

  std::string string() {
    std::string out;
    ++at_;
    while (error_.empty()) {
      if (at_ >= text_.size()) return fail("unterminated string"), out;
      const auto c = static_cast<uint8_t>(text_[at_]);
      if (c == '"') return ++at_, out;
      if (c < 0x20) return fail("control character in a string"), out;
      if (c == '\\') {
        ++at_;
        escape(out);
        continue;
      }
      const size_t begin = at_;
      uint32_t code = 0;
      if (!next_code_point(text_, at_, code)) return fail("not UTF-8"), out;
      out += text_.substr(begin, at_ - begin);
    }
    return out;
  }

  JsonId array(JsonId id, uint32_t depth) {
    ++at_;
    nodes_[id].type = Type::kArray;
    space();
    if (take("]")) return id;
    while (error_.empty()) {
      const JsonId item = value(depth + 1);
      if (!error_.empty()) break;
      nodes_[item].parent = id;
      nodes_[item].place = static_cast<uint32_t>(nodes_[id].items.size());
      nodes_[id].items.push_back(item);
      space();
      if (take("]")) return id;
      if (!take(",")) fail("expected , or ]");
    }
    return id;
  }

  // Where there are many, each is looked for by its name.
  static void sort_names(JsonDocument::Node& node) {
    constexpr size_t kMany = 16;
    if (node.members.size() < kMany) return;
    node.by_name.resize(node.members.size());
    std::iota(node.by_name.begin(), node.by_name.end(), 0);
    std::sort(node.by_name.begin(), node.by_name.end(), [&](uint32_t a, uint32_t b) {
      return node.members[a].first < node.members[b].first;
    });
  }

  JsonId object(JsonId id, uint32_t depth) {
    ++at_;
    nodes_[id].type = Type::kObject;
    std::unordered_map<std::string, uint32_t> places;
    space();
    if (take("}")) return id;
    while (error_.empty()) {
      space();
      if (at_ >= text_.size() || text_[at_] != '"') return fail("expected a name"), id;
      std::string name = string();
      space();
      if (!take(":")) return fail("expected :"), id;
      const JsonId member = value(depth + 1);
      if (!error_.empty()) break;
      auto& members = nodes_[id].members;
      const auto [found, added] = places.try_emplace(name, static_cast<uint32_t>(members.size()));
      if (added) {
        members.emplace_back(std::move(name), member);
      } else {
        members[found->second].second = member;
      }
      nodes_[member].parent = id;
      nodes_[member].place = found->second;
      space();
      if (take("}")) return sort_names(nodes_[id]), id;
      if (!take(",")) fail("expected , or }");
    }
    return id;
  }

  std::string_view text_;
  size_t at_ = 0;
  std::string error_;
  FormCode code_ = FormCode::kInvalidSchema;
  std::vector<JsonDocument::Node> nodes_;
};

FormResult<JsonDocument> JsonDocument::parse(std::string_view text) {
  if (text.size() > kMaxSchemaBytes) {
    return FormError{FormCode::kTooComplex,
                     fmt::format("a schema of {} bytes, at most {}", text.size(), kMaxSchemaBytes),
                     ""};
  }
  JsonDocument document;
  JsonReader reader(text);
  if (!reader.read(document)) return FormError{reader.code(), reader.error(), ""};
  return document;
}

JsonId JsonDocument::member(JsonId id, std::string_view name) const {
  if (const std::vector<uint32_t>& by_name = nodes_[id].by_name; !by_name.empty()) {
    const auto& members = nodes_[id].members;
    const auto at = std::lower_bound(
        by_name.begin(), by_name.end(), name,
        [&](uint32_t place, std::string_view key) { return members[place].first < key; });
    return at != by_name.end() && members[*at].first == name ? members[*at].second : kNoJson;
  }
  for (const auto& [key, value] : nodes_[id].members) {
    if (key == name) return value;
  }
  return kNoJson;
}

std::string JsonDocument::pointer(JsonId id) const {
  std::vector<std::string> parts;
  for (; nodes_[id].parent != kNoJson; id = nodes_[id].parent) {
    const Node& parent = nodes_[nodes_[id].parent];
    if (parent.type == Type::kArray) {
      parts.push_back(std::to_string(nodes_[id].place));
      continue;
    }
    std::string part;
    for (const char c : parent.members[nodes_[id].place].first) {
      part += c == '~' ? "~0" : c == '/' ? "~1" : std::string(1, c);
    }
    parts.push_back(part);
  }
  std::string result;
  for (size_t i = parts.size(); i-- > 0;) result += "/" + parts[i];
  return result;
}

JsonId JsonDocument::follow(JsonId id, std::string_view pointer) const {
  while (!pointer.empty() && id != kNoJson) {
    if (pointer[0] != '/') return kNoJson;
    const size_t end = std::min(pointer.find('/', 1), pointer.size());
    std::string part;
    for (size_t i = 1; i < end; ++i) {
      const bool tilde = pointer[i] == '~' && i + 1 < end;
      part += !tilde ? pointer[i] : pointer[++i] == '1' ? '/' : '~';
    }
    pointer.remove_prefix(end);
    const Node& node = nodes_[id];
    if (node.type == Type::kArray) {
      size_t index = 0;
      const auto [last, error] = std::from_chars(part.data(), part.data() + part.size(), index);
      if (error != std::errc() || last != part.data() + part.size() || index >= node.items.size()) {
        return kNoJson;
      }
      id = node.items[index];
    } else {
      id = member(id, part);
    }
  }
  return id;
}

}  // namespace skein::grammar
