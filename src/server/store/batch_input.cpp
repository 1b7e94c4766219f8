#include "server/store/batch_input.h"

#include <nlohmann/json.hpp>
#include <unordered_map>
#include <utility>

namespace skein {
namespace {

using Json = nlohmann::json;

constexpr size_t kReadBytes = size_t{1} << 20;
constexpr size_t kMaxErrors = 100;
constexpr size_t kMaxCustomIdBytes = 512;

constexpr int kMaxDepth = 128;

// nlohmann writes JSON recursively: what nests without end would exhaust the stack.
bool is_shallow(std::string_view text) {
  int depth = 0;
  bool in_string = false;
  for (size_t i = 0; i < text.size(); ++i) {
    const char c = text[i];
    if (in_string) {
      if (c == '\\') ++i;
      if (c == '"') in_string = false;
    } else if (c == '"') {
      in_string = true;
    } else if (c == '{' || c == '[') {
      if (++depth > kMaxDepth) return false;
    } else if (c == '}' || c == ']') {
      --depth;
    }
  }
  return true;
}

// Anything but an object stands for a line that is no JSON.
Json parse_line(std::string_view text) {
  return is_shallow(text) ? Json::parse(text, nullptr, /*allow_exceptions=*/false) : Json();
}

LineResult refusal(const BatchError& error) {
  const Json body = {{"error",
                      {{"message", error.message},
                       {"type", "invalid_request_error"},
                       {"param", nullptr},
                       {"code", error.code}}}};
  return {400, "", body.dump()};
}

std::string text_field(const Json& object, const char* name) {
  const auto field = object.find(name);
  return field != object.end() && field->is_string() ? field->get<std::string>() : "";
}

bool is_blank(std::string_view text) {
  return text.find_first_not_of(" \t\r") == std::string_view::npos;
}

class Reader {
 public:
  explicit Reader(std::string_view endpoint) : endpoint_(endpoint) {}

  // `whole` is false for a line that is longer than kMaxLineBytes; `text` is then its beginning.
  void take(std::string_view text, uint64_t offset, bool whole) {
    ++number_;
    if (is_blank(text) && whole) return;
    if (input_.lines.size() == kMaxBatchLines) {
      if (!too_many_) fail("too_many_lines", "The file has more than 50000 requests.");
      too_many_ = true;
      return;
    }
    InputLine line{number_, "", offset, text.size(), {}};
    BatchError error =
        whole ? check(text, line) : BatchError{"line_too_long", "The line is too long.", number_};
    if (error.code.empty()) {
      ++usable_;
    } else {
      line.refusal = refusal(error);
      if (broken_.size() < kMaxErrors) broken_.push_back(std::move(error));
    }
    input_.lines.push_back(std::move(line));
  }

  BatchInput finish() && {
    if (input_.lines.empty()) {
      input_.errors.push_back({"empty_file", "The input file is empty.", 0});
    } else if (usable_ == 0 && input_.errors.empty()) {
      input_.errors = std::move(broken_);
    }
    if (!input_.errors.empty()) input_.lines.clear();
    return std::move(input_);
  }

 private:
  // The batch fails, and this line is why.
  void fail(std::string code, std::string message) {
    if (input_.errors.size() == kMaxErrors) return;
    input_.errors.push_back({std::move(code), std::move(message), number_});
  }

  // An error without a code: the line can be run.
  BatchError check(std::string_view text, InputLine& line) {
    const Json json = parse_line(text);
    if (!json.is_object()) {
      return {"invalid_json_line", "This line is not parseable as a JSON object.", number_};
    }
    line.custom_id = text_field(json, "custom_id");
    if (line.custom_id.empty() || line.custom_id.size() > kMaxCustomIdBytes) {
      line.custom_id.clear();
      return {"invalid_custom_id", "custom_id must be a string of 1 to 512 bytes.", number_};
    }
    const auto [first, added] = seen_.try_emplace(line.custom_id, number_);
    if (!added) {
      fail("duplicate_custom_id",
           fmt::format("The custom_id is the same as that of line {}; it must be unique.",
                       first->second));
    }
    if (text_field(json, "method") != "POST") {
      fail("invalid_method", "The method must be POST.");
    }
    if (text_field(json, "url") != endpoint_) {
      fail("mismatched_url", "The url is not the endpoint of the batch.");
    }
    const auto body = json.find("body");
    if (body == json.end() || !body->is_object()) {
      return {"invalid_body", "The body must be a JSON object.", number_};
    }
    return {};
  }

  std::string endpoint_;
  BatchInput input_;
  std::vector<BatchError> broken_;                 // lines that cannot be run
  std::unordered_map<std::string, int64_t> seen_;  // custom_id -> its first line
  int64_t number_ = 0;
  size_t usable_ = 0;
  bool too_many_ = false;
};

// Splits what comes in pieces into lines; holds at most one line and one piece.
class Splitter {
 public:
  explicit Splitter(Reader& reader) : reader_(reader) {}

  void feed(std::string_view piece) {
    while (!piece.empty()) {
      const size_t end = piece.find('\n');
      const std::string_view part = piece.substr(0, end);
      const size_t room = kMaxLineBytes - line_.size();
      whole_ = whole_ && part.size() <= room;
      line_ += part.substr(0, room);
      length_ += part.size();
      if (end == std::string_view::npos) return;
      end_line(1);
      piece.remove_prefix(end + 1);
    }
  }

  void end_line(uint64_t separator) {
    if (length_ + separator == 0) return;
    reader_.take(line_, start_, whole_);
    start_ += length_ + separator;
    line_.clear();
    length_ = 0;
    whole_ = true;
  }

 private:
  Reader& reader_;
  std::string line_;
  uint64_t start_ = 0;
  uint64_t length_ = 0;
  bool whole_ = true;
};

}  // namespace

Result<BatchInput> read_batch_input(const OwnedFd& file, std::string_view endpoint,
                                    const std::function<bool()>& stop) {
  Reader reader(endpoint);
  Splitter splitter(reader);
  for (uint64_t offset = 0;;) {
    if (stop && stop()) return unavailable("the server stops");
    SKEIN_ASSIGN(const std::string piece, read_part(file, offset, kReadBytes));
    if (piece.empty()) break;
    splitter.feed(piece);
    offset += piece.size();
  }
  splitter.end_line(0);
  return std::move(reader).finish();
}

}  // namespace skein
