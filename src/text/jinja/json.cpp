// json.dumps as Hugging Face's tojson calls it.
#include <algorithm>
#include <cmath>

#include "text/jinja/chars.h"
#include "text/jinja/runtime.h"

namespace skein::jinja {
namespace {

class JsonWriter {
 public:
  JsonWriter(Runtime& rt, const JsonStyle& style) : rt_(rt), style_(style) {}

  Status write(const Value& value);
  MarkedText take() { return MarkedText(std::move(out_), !has_data_); }

 private:
  Status write_string(const Value& value);
  Status write_list(const std::vector<Value>& items);
  Status write_dict(const DictObject& dict);
  Result<Value> key_text(const Value& key);
  void newline();

  Runtime& rt_;
  const JsonStyle& style_;
  std::string out_;
  bool has_data_ = false;
  uint32_t depth_ = 0;
};

std::string json_float(double value) {
  if (std::isnan(value)) return "NaN";
  if (std::isinf(value)) return value < 0 ? "-Infinity" : "Infinity";
  return python_float(value);
}

void JsonWriter::newline() {
  if (!style_.indent) return;
  out_ += '\n';
  for (uint32_t i = 0; i < depth_; ++i) out_ += *style_.indent;
}

Status JsonWriter::write_string(const Value& value) {
  const std::string& text = value.bytes();
  has_data_ |= !value.text().from_template();
  SKEIN_TRY(rt_.spend(text.size() / 8));
  SKEIN_TRY(rt_.expect_bytes(out_.size() + text.size()));
  out_ += '"';
  for (size_t pos = 0; pos < text.size();) {
    const CodePoint c = code_point_at(text, pos);
    static constexpr std::string_view kShort = "\"\\\n\r\t\f\b";
    static constexpr std::string_view kLetter = "\"\\nrtfb";
    if (c.value >= 0x20 && c.value < 0x80 && c.value != '"' && c.value != '\\') {
      out_ += text[pos];
    } else if (const size_t i = c.value < 0x80 ? kShort.find(static_cast<char>(c.value))
                                               : std::string_view::npos;
               i != std::string_view::npos) {
      out_ += '\\';
      out_ += kLetter[i];
    } else if (c.value >= 0x20 && !style_.ensure_ascii) {
      out_.append(text, pos, c.length);
    } else if (c.value < 0x10000) {
      out_ += fmt::format("\\u{:04x}", c.value);
    } else {
      const uint32_t v = c.value - 0x10000;
      out_ += fmt::format("\\u{:04x}\\u{:04x}", 0xd800 + (v >> 10), 0xdc00 + (v & 0x3ff));
    }
    pos += c.length;
  }
  out_ += '"';
  return {};
}

Status JsonWriter::write_list(const std::vector<Value>& items) {
  if (items.empty()) {
    out_ += "[]";
    return {};
  }
  out_ += '[';
  ++depth_;
  for (size_t i = 0; i < items.size(); ++i) {
    if (i > 0) out_ += style_.item_separator;
    newline();
    SKEIN_TRY(write(items[i]));
  }
  --depth_;
  newline();
  out_ += ']';
  return {};
}

Result<Value> JsonWriter::key_text(const Value& key) {
  switch (key.kind()) {
    case Kind::kString:
      return key;
    case Kind::kNone:
      return rt_.string("null", !key.is_data());
    case Kind::kBool:
      return rt_.string(key.as_bool() ? "true" : "false", !key.is_data());
    case Kind::kInt:
      return rt_.string(std::to_string(key.as_int()), !key.is_data());
    case Kind::kFloat:
      return rt_.string(json_float(key.as_double()), !key.is_data());
    default:
      return invalid_argument("tojson: keys must be str, int, float, bool or None, not {}",
                              type_name(key));
  }
}

Status JsonWriter::write_dict(const DictObject& dict) {
  if (dict.entries.empty()) {
    out_ += "{}";
    return {};
  }
  std::vector<size_t> order(dict.entries.size());
  for (size_t i = 0; i < order.size(); ++i) order[i] = i;
  if (style_.sort_keys) {
    std::vector<Value> keys;
    keys.reserve(dict.entries.size());
    for (const auto& [key, value] : dict.entries) keys.push_back(key);
    SKEIN_ASSIGN(order, sorted_order(rt_, keys, false));
  }
  out_ += '{';
  ++depth_;
  bool first = true;
  for (const size_t i : order) {
    if (!first) out_ += style_.item_separator;
    first = false;
    newline();
    SKEIN_ASSIGN(const Value key, key_text(dict.entries[i].first));
    SKEIN_TRY(write_string(key));
    out_ += style_.key_separator;
    SKEIN_TRY(write(dict.entries[i].second));
  }
  --depth_;
  newline();
  out_ += '}';
  return {};
}

Status JsonWriter::write(const Value& value) {
  SKEIN_TRY(rt_.spend(1 + (style_.indent ? depth_ * style_.indent->size() / 32 : 0)));
  SKEIN_TRY(rt_.expect_bytes(out_.size()));
  if (depth_ > rt_.limits().depth) return invalid_argument("tojson: a value is nested too deep");
  has_data_ |= value.is_data();
  switch (value.kind()) {
    case Kind::kNone:
      out_ += "null";
      return {};
    case Kind::kBool:
      out_ += value.as_bool() ? "true" : "false";
      return {};
    case Kind::kInt:
      out_ += std::to_string(value.as_int());
      return {};
    case Kind::kFloat:
      out_ += json_float(value.as_double());
      return {};
    case Kind::kString:
      return write_string(value);
    case Kind::kList:
    case Kind::kTuple:
      return write_list(value.items());
    case Kind::kDict:
      return write_dict(value.dict());
    default:
      return invalid_argument("tojson: an object of type {} is not JSON serializable",
                              type_name(value));
  }
}

}  // namespace

Result<MarkedText> to_json(Runtime& rt, const Value& value, const JsonStyle& style) {
  JsonWriter writer(rt, style);
  SKEIN_TRY(writer.write(value));
  return writer.take();
}

}  // namespace skein::jinja
