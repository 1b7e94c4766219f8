// "%s" % x.
#include <cmath>

#include "text/jinja/format_spec.h"

namespace skein::jinja {
namespace {

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
      SKEIN_TRY(rt_.expect_bytes(out_.held_bytes()));
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
    FormatSpec spec;
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

  Status read_spec(FormatSpec& spec, size_t& pos) const {
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

  Result<Value> convert(const Value& value, FormatSpec spec) {
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
  static FormatSpec plain(FormatSpec spec) {
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

}  // namespace

Result<Value> percent_format(Runtime& rt, const MarkedText& format, const Value& arguments) {
  SKEIN_TRY(rt.spend(1 + format.size() / 8));
  return PercentFormatter(rt, format, arguments).run();
}

}  // namespace skein::jinja
