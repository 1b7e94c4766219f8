// "%s" % x and "{}".format(x).
#include <cmath>
#include <fmt/format.h>

#include "text/jinja/chars.h"
#include "text/jinja/literals.h"
#include "text/jinja/natives.h"

namespace skein::jinja {
namespace {

struct Spec {
  std::string fill = " ";
  char align = 0;  // '<', '>', '^', '='; 0: numbers right, text left
  char sign = '-';
  bool thousands = false;
  int64_t width = 0;
  int64_t precision = -1;
  char type = 0;
};

constexpr int64_t kMaxPrecision = 300;

void group_thousands(std::string& digits) {
  const size_t whole = std::min(digits.find_first_not_of("0123456789"), digits.size());
  for (size_t i = whole; i > 3; i -= 3) digits.insert(i - 3, 1, ',');
}

// The digits of |value| in the spec's type, without sign.
Result<std::string> float_digits(double value, const Spec& spec) {
  const double magnitude = std::fabs(value);
  const int precision = static_cast<int>(spec.precision < 0 ? 6 : spec.precision);
  switch (spec.type) {
    case 0:
      if (spec.precision < 0) return python_float(magnitude);
      return fmt::format("{:.{}g}", magnitude, std::max(precision, 1));
    case 'f':
    case 'F':
      return fmt::format("{:.{}f}", magnitude, precision);
    case 'e':
      return fmt::format("{:.{}e}", magnitude, precision);
    case 'E':
      return fmt::format("{:.{}E}", magnitude, precision);
    case 'g':
      return fmt::format("{:.{}g}", magnitude, std::max(precision, 1));
    case 'G':
      return fmt::format("{:.{}G}", magnitude, std::max(precision, 1));
    case '%':
      return fmt::format("{:.{}f}%", magnitude * 100, precision);
    default:
      return invalid_argument("unknown format code '{}' for a float", spec.type);
  }
}

Result<std::string> int_digits(int64_t value, const Spec& spec) {
  const uint64_t magnitude =
      value < 0 ? ~static_cast<uint64_t>(value) + 1 : static_cast<uint64_t>(value);
  switch (spec.type) {
    case 0:
    case 'd':
    case 'i':
    case 'u':
      return std::to_string(magnitude);
    case 'x':
      return fmt::format("{:x}", magnitude);
    case 'X':
      return fmt::format("{:X}", magnitude);
    case 'o':
      return fmt::format("{:o}", magnitude);
    case 'b':
      return fmt::format("{:b}", magnitude);
    default:
      return float_digits(static_cast<double>(value), spec);
  }
}

Result<Value> padded(Runtime& rt, MarkedText text, const Spec& spec, char default_align) {
  const char align = spec.align == 0 ? default_align : spec.align;
  const double left = align == '<' ? 0 : (align == '^' ? 0.5 : 1);
  if (align == '^') {  // unlike str.center, the odd one goes right
    const auto length = static_cast<int64_t>(count_code_points(text.bytes()));
    if (spec.width > length) {
      const int64_t before = (spec.width - length) / 2;
      SKEIN_ASSIGN(const Value half,
                   pad_text(rt, rt.string(std::move(text)), length + before, spec.fill, 1));
      return pad_text(rt, half, spec.width, spec.fill, 0);
    }
  }
  return pad_text(rt, rt.string(std::move(text)), spec.width, spec.fill, left);
}

Result<Value> format_number(Runtime& rt, const Value& value, const Spec& spec) {
  if (spec.precision > kMaxPrecision) {
    return invalid_argument("a precision of {} is more than {}", spec.precision, kMaxPrecision);
  }
  const bool negative =
      value.is(Kind::kFloat) ? std::signbit(value.as_double()) : value.as_int() < 0;
  SKEIN_ASSIGN(std::string digits, value.is(Kind::kFloat) ? float_digits(value.as_double(), spec)
                                                          : int_digits(value.as_int(), spec));
  if (spec.thousands) group_thousands(digits);
  const std::string sign = negative ? "-" : (spec.sign == '-' ? "" : std::string(1, spec.sign));
  const bool from_template = !value.is_data();
  if (spec.align == '=') {
    SKEIN_ASSIGN(const Value number,
                 pad_text(rt, rt.string(std::move(digits), from_template),
                          spec.width - static_cast<int64_t>(sign.size()), spec.fill, 1));
    MarkedText out(sign, from_template);
    out.append(number.text());
    return rt.string(std::move(out));
  }
  return padded(rt, MarkedText(sign + digits, from_template), spec, '>');
}

Result<Value> format_text(Runtime& rt, MarkedText text, const Spec& spec, char default_align) {
  if (spec.precision >= 0) {
    text = text.slice(0, offset_of(text.bytes(), static_cast<size_t>(spec.precision)));
  }
  return padded(rt, std::move(text), spec, default_align);
}

// Digits at format[pos]; -1 when there are none.
Result<int64_t> read_number(std::string_view format, size_t& pos) {
  const size_t begin = pos;
  while (pos < format.size() && format[pos] >= '0' && format[pos] <= '9') ++pos;
  if (pos == begin) return -1;
  int64_t value = 0;
  if (parse_int(format.substr(begin, pos - begin), 10, value) != ParseNumber::kOk) {
    return invalid_argument("a number in a format is too large");
  }
  return value;
}

class PercentFormatter {
 public:
  PercentFormatter(Runtime& rt, const MarkedText& format, const Value& arguments)
      : rt_(rt), format_(format), text_(format.bytes()), arguments_(arguments) {}

  Result<Value> run() {
    for (size_t pos = 0; pos < text_.size();) {
      const size_t percent = std::min(text_.find('%', pos), text_.size());
      out_.append_range(format_, pos, percent);
      pos = percent;
      if (percent < text_.size()) SKEIN_TRY(directive(pos));
      SKEIN_TRY(rt_.expect_bytes(out_.size()));
    }
    const bool all_used = arguments_.is(Kind::kTuple) ? next_ >= arguments_.items().size()
                                                      : next_ > 0 || arguments_.is_dict();
    if (!all_used) {
      return invalid_argument("not all arguments converted during string formatting");
    }
    return rt_.string(std::move(out_));
  }

 private:
  Status directive(size_t& pos) {
    ++pos;
    Spec spec;
    Value value;
    bool has_key = false;
    if (pos < text_.size() && text_[pos] == '(') {
      const size_t close = text_.find(')', pos);
      if (close == std::string_view::npos) return invalid_argument("incomplete format key");
      if (!arguments_.is_dict()) return invalid_argument("format requires a mapping");
      const Value* found = arguments_.dict().find(text_.substr(pos + 1, close - pos - 1));
      if (found == nullptr) return invalid_argument("a format key is missing in the mapping");
      value = *found;
      has_key = true;
      pos = close + 1;
    }
    SKEIN_TRY(read_spec(spec, pos));
    if (pos >= text_.size()) return invalid_argument("incomplete format");
    spec.type = text_[pos++];
    if (spec.type == '%') {
      out_.append("%", true);
      return {};
    }
    if (!has_key) {
      SKEIN_ASSIGN(value, next_argument());
    }
    SKEIN_ASSIGN(const Value piece, convert(value, spec));
    out_.append(piece.text());
    return {};
  }

  Status read_spec(Spec& spec, size_t& pos) const {
    for (; pos < text_.size(); ++pos) {
      if (text_[pos] == '-') {
        spec.align = '<';
      } else if (text_[pos] == '0') {
        if (spec.align == 0) spec.align = '=', spec.fill.assign(1, '0');
      } else if (text_[pos] == '+' || text_[pos] == ' ') {
        if (spec.sign != '+') spec.sign = text_[pos];
      } else {
        break;
      }
    }
    SKEIN_ASSIGN(const int64_t width, read_number(text_, pos));
    spec.width = std::max<int64_t>(width, 0);
    if (pos < text_.size() && text_[pos] == '.') {
      ++pos;
      SKEIN_ASSIGN(const int64_t precision, read_number(text_, pos));
      spec.precision = std::max<int64_t>(precision, 0);
    }
    while (pos < text_.size() && (text_[pos] == 'h' || text_[pos] == 'l' || text_[pos] == 'L')) {
      ++pos;
    }
    return {};
  }

  Result<Value> next_argument() {
    const size_t i = next_++;
    if (!arguments_.is(Kind::kTuple)) {
      if (i == 0) return arguments_;
    } else if (i < arguments_.items().size()) {
      return arguments_.items()[i];
    }
    return invalid_argument("not enough arguments for format string");
  }

  Result<Value> convert(const Value& value, Spec spec) {
    switch (spec.type) {
      case 's': {
        SKEIN_ASSIGN(MarkedText text, to_text(rt_, value));
        return format_text(rt_, std::move(text), plain(spec), '>');
      }
      case 'r': {
        SKEIN_ASSIGN(MarkedText text, to_repr(rt_, value));
        return format_text(rt_, std::move(text), plain(spec), '>');
      }
      case 'd':
      case 'i':
      case 'u':
        if (value.is(Kind::kFloat)) {
          if (!(std::fabs(value.as_double()) < 9.2e18)) {
            return invalid_argument("%d: {} does not fit 64 bits", value.as_double());
          }
          return format_number(
              rt_, Value::integer(static_cast<int64_t>(value.as_double()), value.is_data()), spec);
        }
        [[fallthrough]];
      case 'x':
      case 'X':
      case 'o':
        if (!value.is_integral()) {
          return invalid_argument("%{} format: a number is required, not {}", spec.type,
                                  type_name(value));
        }
        return format_number(rt_, Value::integer(value.as_int(), value.is_data()), spec);
      case 'f':
      case 'F':
      case 'e':
      case 'E':
      case 'g':
      case 'G':
        if (!value.is_number()) {
          return invalid_argument("must be real number, not {}", type_name(value));
        }
        return format_number(rt_, Value::real(value.as_double(), value.is_data()), spec);
      default:
        return invalid_argument("unsupported format character '{}'", spec.type);
    }
  }

  // "%05s" pads with spaces.
  static Spec plain(Spec spec) {
    if (spec.align == '=') spec.align = 0, spec.fill.assign(1, ' ');
    return spec;
  }

  Runtime& rt_;
  const MarkedText& format_;
  std::string_view text_;
  const Value& arguments_;
  MarkedText out_;
  size_t next_ = 0;
};

class BraceFormatter {
 public:
  BraceFormatter(Runtime& rt, const MarkedText& format, Args& args)
      : rt_(rt), format_(format), text_(format.bytes()), args_(args) {}

  Result<Value> run() {
    for (size_t pos = 0; pos < text_.size();) {
      const size_t brace = std::min(text_.find_first_of("{}", pos), text_.size());
      out_.append_range(format_, pos, brace);
      pos = brace;
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
      SKEIN_TRY(rt_.expect_bytes(out_.size()));
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
    Spec spec;
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
  static Status read_spec(std::string_view text, Spec& spec) {
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
      const auto it = std::find_if(args_.keywords.begin(), args_.keywords.end(),
                                   [name](const auto& kw) { return kw.first == name; });
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

Result<Value> percent_format(Runtime& rt, const MarkedText& format, const Value& arguments) {
  SKEIN_TRY(rt.spend(1 + format.size() / 8));
  return PercentFormatter(rt, format, arguments).run();
}

Result<Value> brace_format(Runtime& rt, const MarkedText& format, Args& args) {
  SKEIN_TRY(rt.spend(1 + format.size() / 8));
  return BraceFormatter(rt, format, args).run();
}

}  // namespace skein::jinja
