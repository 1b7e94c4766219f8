// "{}".format(x).
#include <algorithm>

#include "text/jinja/chars.h"
#include "text/jinja/format_spec.h"
#include "text/jinja/literals.h"

namespace skein::jinja {
namespace {

class BraceFormatter {
 public:
  BraceFormatter(Runtime& rt, const MarkedText& format, Args& args)
      : rt_(rt), format_(format), text_(format.bytes()), args_(args) {}

  Result<Value> run() {
    for (size_t pos = 0; pos < text_.size();) {
      const size_t brace = std::min(text_.find_first_of("{}", pos), text_.size());
      out_.append_range(format_, pos, brace);
      if (brace == text_.size()) break;
      if (brace + 1 < text_.size() && text_[brace + 1] == text_[brace]) {
        out_.append_range(format_, brace, brace + 1);
        pos = brace + 2;
        continue;
      }
      if (text_[brace] == '}') return invalid_argument("single '}}' encountered in format string");
      const size_t close = text_.find('}', brace);
      if (close == std::string_view::npos) {
        return invalid_argument("expected '}}' before end of string");
      }
      SKEIN_TRY(field(text_.substr(brace + 1, close - brace - 1)));
      SKEIN_TRY(rt_.expect_bytes(out_.held_bytes()));
      pos = close + 1;
    }
    return rt_.string(std::move(out_));
  }

 private:
  Status field(std::string_view field) {
    std::string_view spec_text;
    if (const size_t colon = field.find(':'); colon != std::string_view::npos) {
      spec_text = field.substr(colon + 1);
      field = field.substr(0, colon);
    }
    char conversion = 0;
    if (const size_t bang = field.find('!'); bang != std::string_view::npos) {
      if (field.size() != bang + 2) return invalid_argument("bad conversion in a format field");
      conversion = field[bang + 1];
      field = field.substr(0, bang);
    }
    SKEIN_ASSIGN(Value value, lookup(field));
    if (conversion == 'r' || conversion == 's') {
      SKEIN_ASSIGN(MarkedText text, conversion == 'r' ? to_repr(rt_, value) : to_text(rt_, value));
      value = rt_.string(std::move(text));
    } else if (conversion != 0) {
      return invalid_argument("unknown conversion specifier '{}'", conversion);
    }
    FormatSpec spec;
    SKEIN_TRY(read_spec(spec_text, spec));
    const bool as_number = value.is(Kind::kInt) || value.is(Kind::kFloat) ||
                           (value.is(Kind::kBool) && !spec_text.empty());
    if (!as_number && spec.type != 0 && spec.type != 's') {
      return invalid_argument("unknown format code '{}' for '{}'", spec.type, type_name(value));
    }
    if (as_number) {
      SKEIN_ASSIGN(const Value piece, format_number(rt_, value, spec));
      out_.append(piece.text());
      return {};
    }
    if (!value.is_string() && !spec_text.empty()) {
      return invalid_argument("unsupported format string passed to {}", type_name(value));
    }
    SKEIN_ASSIGN(MarkedText text, to_text(rt_, value));
    SKEIN_ASSIGN(const Value piece, format_text(rt_, std::move(text), spec, '<'));
    out_.append(piece.text());
    return {};
  }

  // [[fill]align][sign][0][width][,][.precision][type]
  static Status read_spec(std::string_view text, FormatSpec& spec) {
    const auto is_align = [](char c) { return c == '<' || c == '>' || c == '^' || c == '='; };
    size_t pos = 0;
    const size_t first = text.empty() ? 0 : code_point_at(text, 0).length;
    if (first < text.size() && is_align(text[first])) {
      spec.fill = std::string(text.substr(0, first));
      spec.align = text[first];
      pos = first + 1;
    } else if (!text.empty() && is_align(text[0])) {
      spec.align = text[0];
      pos = 1;
    }
    const auto at = [&] { return pos < text.size() ? text[pos] : '\0'; };
    if (at() == '+' || at() == '-' || at() == ' ') spec.sign = text[pos++];
    if (at() == '0' && spec.align == 0) {
      spec.fill.assign(1, '0');
      spec.align = '=';
    }
    SKEIN_ASSIGN(const int64_t width, read_number(text, pos));
    spec.width = std::max<int64_t>(width, 0);
    if (at() == ',') {
      spec.thousands = true;
      ++pos;
    }
    if (at() == '.') {
      ++pos;
      SKEIN_ASSIGN(spec.precision, read_number(text, pos));
      if (spec.precision < 0) return invalid_argument("format specifier missing precision");
    }
    if (pos < text.size()) spec.type = text[pos++];
    if (pos != text.size()) return invalid_argument("invalid format specifier");
    return {};
  }

  // "", "0", "name", then ".attribute" and "[item]" any number of times.
  Result<Value> lookup(std::string_view field) {
    const size_t end = std::min(field.find_first_of(".["), field.size());
    const std::string_view name = field.substr(0, end);
    Value value;
    int64_t index = 0;
    if (name.empty() || parse_int(name, 10, index) == ParseNumber::kOk) {
      const size_t i = name.empty() ? next_++ : static_cast<size_t>(index);
      if (i >= args_.positional.size()) {
        return invalid_argument("replacement index {} out of range for positional args", i);
      }
      value = args_.positional[i];
    } else {
      SKEIN_TRY(rt_.spend(args_.keywords.size() / 16));
      const auto it = std::find_if(args_.keywords.begin(), args_.keywords.end(),
                                   [name](const auto& kw) { return kw.first.bytes() == name; });
      if (it == args_.keywords.end()) return invalid_argument("no format argument '{}'", name);
      value = it->second;
    }
    return follow(std::move(value), field.substr(end));
  }

  Result<Value> follow(Value value, std::string_view path) {
    while (!path.empty()) {
      SKEIN_TRY(rt_.spend(1));
      if (path[0] == '.') {
        const size_t end = std::min(path.find_first_of(".[", 1), path.size());
        SKEIN_ASSIGN(value, get_attribute(rt_, value, path.substr(1, end - 1)));
        path = path.substr(end);
      } else {
        const size_t close = path.find(']');
        if (path[0] != '[' || close == std::string_view::npos) {
          return invalid_argument("bad field name in a format string");
        }
        const std::string_view inside = path.substr(1, close - 1);
        int64_t index = 0;
        const Value key = parse_int(inside, 10, index) == ParseNumber::kOk
                              ? Value::integer(index)
                              : rt_.string(std::string(inside), true);
        SKEIN_ASSIGN(value, get_item(rt_, value, key));
        path = path.substr(close + 1);
      }
      if (value.is_undefined()) return undefined_error(value);
    }
    return value;
  }

  Runtime& rt_;
  const MarkedText& format_;
  std::string_view text_;
  Args& args_;
  MarkedText out_;
  size_t next_ = 0;
};

}  // namespace

Result<Value> brace_format(Runtime& rt, const MarkedText& format, Args& args) {
  SKEIN_TRY(rt.spend(1 + format.size() / 8));
  return BraceFormatter(rt, format, args).run();
}

}  // namespace skein::jinja
