#include "server/json.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <cmath>
#include <numeric>
#include <utility>
#include <vector>

#include "text/utf8.h"

namespace skein::json {
namespace {

// nlohmann's own builder looks each name up among its siblings, which is quadratic in an ordered
// object, and bounds nothing.
class Builder : public nlohmann::json_sax<Value> {
 public:
  bool null() override { return add(Value(nullptr)); }
  bool boolean(bool value) override { return add(Value(value)); }
  bool number_integer(number_integer_t value) override { return add(Value(value)); }
  bool number_unsigned(number_unsigned_t value) override { return add(Value(value)); }
  bool number_float(number_float_t value, const string_t&) override { return add(Value(value)); }
  bool string(string_t& value) override { return add(Value(std::move(value))); }
  bool binary(binary_t&) override { return false; }

  bool start_object(size_t) override { return open(Value::object()); }
  bool start_array(size_t) override { return open(Value::array()); }
  bool key(string_t& name) override {
    names_.back() = std::move(name);
    return true;
  }
  bool end_object() override {
    drop_duplicates(open_.back());
    return close();
  }
  bool end_array() override { return close(); }

  bool parse_error(size_t position, const std::string&,
                   const nlohmann::detail::exception& error) override {
    offset = position > 0 ? position - 1 : 0;
    // The only other error is a number that no double can hold.
    reason = error.id == 406 ? "a number is out of range" : "not valid JSON";
    return false;
  }

  Value root;
  size_t offset = SIZE_MAX;  // of a syntax error
  std::string_view reason;

 private:
  using Members = std::vector<std::pair<const std::string, Value>>;

  // Members are sorted, not hashed: the client chooses the names, and could choose collisions.
  static void drop_duplicates(Value& object) {
    Members& members = object.get_ref<Value::object_t&>();
    std::vector<size_t> order(members.size());
    std::iota(order.begin(), order.end(), size_t{0});
    std::sort(order.begin(), order.end(), [&](size_t a, size_t b) {
      const int compared = members[a].first.compare(members[b].first);
      return compared != 0 ? compared < 0 : a < b;
    });
    std::vector<bool> dropped(members.size());
    bool any = false;
    for (size_t i = 0, first = 0; i < order.size(); ++i) {
      if (members[order[i]].first != members[order[first]].first) first = i;
      if (i == first) continue;
      members[order[first]].second = std::move(members[order[i]].second);
      dropped[order[i]] = any = true;
    }
    if (!any) return;
    Members unique;
    for (size_t i = 0; i < members.size(); ++i) {
      if (!dropped[i]) unique.emplace_back(members[i].first, std::move(members[i].second));
    }
    members = std::move(unique);
  }

  bool count() {
    if (++values_ <= kMaxValues) return true;
    reason = "too many values";
    return false;
  }

  bool open(Value container) {
    if (open_.size() == kMaxDepth) {
      reason = "nested too deeply";
      return false;
    }
    open_.push_back(std::move(container));
    names_.emplace_back();
    return count();
  }

  bool close() {
    Value done = std::move(open_.back());
    open_.pop_back();
    names_.pop_back();
    return attach(std::move(done));
  }

  bool add(Value value) { return count() && attach(std::move(value)); }

  bool attach(Value value) {
    if (open_.empty()) {
      root = std::move(value);
    } else if (open_.back().is_array()) {
      open_.back().get_ref<Value::array_t&>().push_back(std::move(value));
    } else {
      Members& members = open_.back().get_ref<Value::object_t&>();
      members.emplace_back(std::move(names_.back()), std::move(value));
    }
    return true;
  }

  std::vector<Value> open_;
  std::vector<std::string> names_;  // of the member that is being read, per level
  size_t values_ = 0;
};

constexpr std::string_view kHex = "0123456789abcdef";

bool is_plain(char c) {
  return static_cast<uint8_t>(c) >= 0x20 && static_cast<uint8_t>(c) < 0x7F && c != '"' && c != '\\';
}

void append_escaped(std::string& out, char c) {
  switch (c) {
    case '"':
      out.append("\\\"");
      return;
    case '\\':
      out.append("\\\\");
      return;
    case '\n':
      out.append("\\n");
      return;
    case '\r':
      out.append("\\r");
      return;
    case '\t':
      out.append("\\t");
      return;
    default:
      out.append("\\u00");
      out.push_back(kHex[static_cast<uint8_t>(c) >> 4]);
      out.push_back(kHex[static_cast<uint8_t>(c) & 15]);
  }
}

template <class Number>
void append_chars(std::string& out, Number number) {
  std::array<char, 32> digits;
  const auto end = std::to_chars(digits.data(), digits.data() + digits.size(), number);
  out.append(digits.data(), end.ptr);
}

}  // namespace

std::variant<Value, ParseError> parse(std::string_view text) {
  // The library takes a NUL for the end of the text.
  if (const size_t nul = text.find('\0'); nul != std::string_view::npos) {
    return ParseError{nul, "not valid JSON"};
  }
  Builder builder;
  try {
    if (Value::sax_parse(text, &builder)) return std::move(builder.root);
  } catch (const Value::exception&) {
    return ParseError{0, "not valid JSON"};
  }  // std::bad_alloc goes to the top of the thread: short memory is not the client's fault
  const size_t offset = builder.offset == SIZE_MAX ? text.size() : builder.offset;
  return ParseError{offset, builder.reason.empty() ? "not valid JSON" : builder.reason};
}

void append_string(std::string& out, std::string_view text) {
  out.push_back('"');
  while (!text.empty()) {
    size_t plain = 0;
    while (plain < text.size() && is_plain(text[plain])) ++plain;
    out.append(text.substr(0, plain));
    text.remove_prefix(plain);
    if (text.empty()) break;
    if (static_cast<uint8_t>(text.front()) < 0x80) {
      append_escaped(out, text.front());
      text.remove_prefix(1);
      continue;
    }
    const Utf8Char next = utf8_next(text);
    out.append(next.kind == Utf8Kind::kValid ? text.substr(0, next.length) : kReplacementUtf8);
    text.remove_prefix(next.length);
  }
  out.push_back('"');
}

void append_int(std::string& out, int64_t number) {
  append_chars(out, number);
}

void append_number(std::string& out, double number) {
  if (!std::isfinite(number)) {
    out.append("null");
  } else {
    append_chars(out, number);
  }
}

void append_name(std::string& out, std::string_view name) {
  if (out.back() != '{') out.push_back(',');
  out.append("\"").append(name).append("\":");
}

void append_member(std::string& out, std::string_view name, std::string_view text) {
  append_name(out, name);
  append_string(out, text);
}

}  // namespace skein::json
