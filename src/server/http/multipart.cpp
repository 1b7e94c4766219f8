#include "server/http/multipart.h"

#include <algorithm>
#include <utility>
#include <vector>

namespace skein::http {
namespace {

constexpr size_t kMaxBoundaryBytes = 70;
constexpr size_t kMaxParameters = 16;

bool is_boundary_char(char c) {
  return (c >= '0' && c <= '9') || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') ||
         std::string_view("'()+_,-./:=? ").find(c) != std::string_view::npos;
}

bool is_token(std::string_view text) {
  return !text.empty() && std::all_of(text.begin(), text.end(), is_token_char);
}

bool has_control(std::string_view text) {
  return std::any_of(text.begin(), text.end(),
                     [](char c) { return static_cast<unsigned char>(c) < 0x20 || c == 0x7F; });
}

// `form-data; name="a"`: the word before the parameters, and the parameters.
struct Value {
  std::string word;
  std::vector<Header> parameters;

  const std::string* parameter(std::string_view name) const {
    const auto is_it = [&](const Header& each) { return equals_ignoring_case(each.name, name); };
    const auto found = std::find_if(parameters.begin(), parameters.end(), is_it);
    return found == parameters.end() ? nullptr : &found->value;
  }
  bool repeats() const {
    for (auto a = parameters.begin(); a != parameters.end(); ++a) {
      for (auto b = a + 1; b != parameters.end(); ++b) {
        if (equals_ignoring_case(a->name, b->name)) return true;
      }
    }
    return false;
  }
};

// A quoted string from the front of `text`, whose first byte is the quote. A backslash only counts
// before a quote or another one: names of files have them, and not every client escapes them.
std::optional<std::string> take_quoted(std::string_view& text) {
  std::string value;
  for (size_t i = 1; i < text.size(); ++i) {
    if (text[i] == '"') {
      text.remove_prefix(i + 1);
      return value;
    }
    const bool escape =
        text[i] == '\\' && i + 1 < text.size() && (text[i + 1] == '"' || text[i + 1] == '\\');
    if (escape) ++i;
    value.push_back(text[i]);
  }
  return std::nullopt;
}

std::optional<Value> parse_value(std::string_view text) {
  Value value;
  size_t end = std::min(text.find(';'), text.size());
  value.word = trimmed(text.substr(0, end));
  text.remove_prefix(end);
  while (!text.empty()) {
    text = trimmed(text.substr(1));  // the semicolon
    const size_t equals = text.find('=');
    if (equals == std::string_view::npos || !is_token(text.substr(0, equals))) return std::nullopt;
    if (value.parameters.size() == kMaxParameters) return std::nullopt;
    Header parameter{std::string(text.substr(0, equals)), {}};
    text.remove_prefix(equals + 1);
    if (text.starts_with('"')) {
      auto quoted = take_quoted(text);
      if (!quoted) return std::nullopt;
      parameter.value = std::move(*quoted);
      text = trimmed(text);
      if (!text.empty() && !text.starts_with(';')) return std::nullopt;
    } else {
      end = std::min(text.find(';'), text.size());
      parameter.value = trimmed(text.substr(0, end));
      text.remove_prefix(end);
    }
    value.parameters.push_back(std::move(parameter));
  }
  if (value.repeats()) return std::nullopt;
  return value;
}

// The fault of a part's head, or nullopt and `out`. `text` is its lines, each with its CRLF.
std::optional<std::string_view> parse_head(std::string_view text, PartHead& out) {
  bool named = false;
  while (!text.empty()) {
    const size_t end = text.find("\r\n");
    const std::string_view line = text.substr(0, end);
    text.remove_prefix(end + 2);
    const size_t colon = line.find(':');
    if (colon == std::string_view::npos || !is_token(line.substr(0, colon)) || has_control(line)) {
      return "a part of the form has a malformed field";
    }
    const std::string_view name = line.substr(0, colon);
    const std::string_view content = trimmed(line.substr(colon + 1));
    if (equals_ignoring_case(name, "content-transfer-encoding")) {
      const bool plain = equals_ignoring_case(content, "binary") ||
                         equals_ignoring_case(content, "7bit") ||
                         equals_ignoring_case(content, "8bit");
      if (!plain) return "a part of the form has an encoding that is not supported";
    }
    if (!equals_ignoring_case(name, "content-disposition")) continue;
    const auto value = parse_value(content);
    const std::string* field = value ? value->parameter("name") : nullptr;
    if (named || field == nullptr || field->empty() ||
        !equals_ignoring_case(value->word, "form-data")) {
      return "a part of the form has no sound Content-Disposition";
    }
    named = true;
    out.name = *field;
    if (const std::string* filename = value->parameter("filename")) out.filename = *filename;
  }
  if (!named) return "a part of the form has no sound Content-Disposition";
  return std::nullopt;
}

}  // namespace

std::optional<std::string> boundary_of(std::string_view content_type) {
  const auto value = parse_value(content_type);
  if (!value || !equals_ignoring_case(value->word, "multipart/form-data")) return std::nullopt;
  const std::string* boundary = value->parameter("boundary");
  const bool sound = boundary != nullptr && !boundary->empty() &&
                     boundary->size() <= kMaxBoundaryBytes && boundary->back() != ' ' &&
                     std::all_of(boundary->begin(), boundary->end(), is_boundary_char);
  if (!sound) return std::nullopt;
  return *boundary;
}

MultipartParser::MultipartParser(std::string_view boundary, PartReceiver& receiver,
                                 MultipartLimits limits)
    : delimiter_("\r\n--" + std::string(boundary)), receiver_(receiver), limits_(limits) {}

std::optional<Fault> MultipartParser::advance(std::string_view piece) {
  if (fault_) return fault_;
  held_.erase(0, std::exchange(begin_, 0));
  held_.append(piece);
  while (!fault_ && step()) {
  }
  return fault_;
}

std::optional<Fault> MultipartParser::finish() {
  const bool whole = state_ == State::kAfterLast && (rest().empty() || rest() == "\r\n");
  if (!fault_ && !whole) fail("the form ended before its last boundary");
  return fault_;
}

bool MultipartParser::step() {
  switch (state_) {
    case State::kFirstBoundary:
      return first_boundary();
    case State::kAfterBoundary:
      return after_boundary();
    case State::kHead:
      return head();
    case State::kData:
      return data();
    case State::kAfterLast:
      return after_last();
  }
  return false;
}

bool MultipartParser::fail(std::string_view message) {
  fault_ = Fault{400, message};
  return false;
}

bool MultipartParser::first_boundary() {
  const std::string_view boundary = std::string_view(delimiter_).substr(2);
  if (!boundary.starts_with(rest().substr(0, boundary.size()))) {
    return fail("the form does not begin with its boundary");
  }
  if (rest().size() < boundary.size()) return false;
  take(boundary.size());
  state_ = State::kAfterBoundary;
  return true;
}

bool MultipartParser::after_boundary() {
  if (rest().size() < 2) return false;
  if (rest().starts_with("\r\n")) {
    if (++parts_ > limits_.parts) return fail("the form has too many parts");
    state_ = State::kHead;
  } else if (rest().starts_with("--") && parts_ > 0) {
    state_ = State::kAfterLast;
  } else {
    return fail("a boundary of the form is malformed");
  }
  take(2);
  return true;
}

bool MultipartParser::head() {
  constexpr std::string_view kEnd = "\r\n\r\n";
  const size_t end = rest().substr(0, limits_.head_bytes).find(kEnd);
  if (end == std::string_view::npos) {
    return rest().size() >= limits_.head_bytes &&
           fail("the head of a part of the form is too long");
  }
  PartHead head;
  if (const auto wrong = parse_head(rest().substr(0, end + 2), head)) return fail(*wrong);
  take(end + kEnd.size());
  fault_ = receiver_.begin_part(head);
  state_ = State::kData;
  return !fault_;
}

bool MultipartParser::deliver(std::string_view bytes) {
  if (!bytes.empty()) fault_ = receiver_.part_data(bytes);
  return !fault_;
}

bool MultipartParser::data() {
  const std::string_view bytes = rest();
  const size_t at = bytes.find(delimiter_);
  if (at != std::string_view::npos) {
    take(at + delimiter_.size());
    state_ = State::kAfterBoundary;
    if (deliver(bytes.substr(0, at))) fault_ = receiver_.end_part();
    return !fault_;
  }
  // A delimiter may have begun. Its only CR is its first byte, so only the last one can be it.
  const size_t last = bytes.rfind('\r');
  const bool begun = last != std::string_view::npos &&
                     std::string_view(delimiter_).starts_with(bytes.substr(last));
  const size_t known = begun ? last : bytes.size();
  take(known);
  deliver(bytes.substr(0, known));
  return false;
}

bool MultipartParser::after_last() {
  if (!std::string_view("\r\n").starts_with(rest())) return fail("bytes follow the form");
  return false;
}

}  // namespace skein::http
