#include "server/batch/batch_request.h"

#include <charconv>
#include <fmt/core.h>
#include <utility>

#include "server/api/fields.h"

namespace skein {
namespace {

using api::Fields;
using api::Problem;

constexpr int64_t kMaxWindowHours = int64_t{24} * 14;
constexpr size_t kMaxCustomIdBytes = 512;

// "24h" or "14d".
int64_t read_window(const Fields& fields) {
  const std::string text = fields.string("completion_window").value_or("24h");
  int64_t count = 0;
  const char* end = text.data() + text.size();
  const auto parsed = std::from_chars(text.data(), end, count);
  const bool known = parsed.ec == std::errc() && parsed.ptr + 1 == end &&
                     (*parsed.ptr == 'h' || *parsed.ptr == 'd');
  const int64_t most = known && *parsed.ptr == 'd' ? kMaxWindowHours / 24 : kMaxWindowHours;
  if (!known || count < 1 || count > most) {
    fields.fail("completion_window",
                "Hours or days as in 24h or 7d are expected here, at most 14d.");
    return 0;
  }
  return count * (*parsed.ptr == 'd' ? 86'400 : 3'600);
}

// The member where it is a string, else nothing.
std::string text_field(const json::Value& object, const char* name) {
  const auto field = object.find(name);
  return field != object.end() && field->is_string() ? field->get<std::string>() : "";
}

}  // namespace

api::Parsed<NewBatch> parse_batch_request(std::string_view body) {
  auto parsed = api::parse_body(body);
  if (!parsed.ok()) return parsed.error();
  Problem problem;
  const Fields fields(*parsed, "", problem);
  NewBatch batch;
  batch.input_file = fields.required_string("input_file_id", api::kMaxNameBytes);
  if (!fields.has("endpoint")) fields.missing("endpoint");
  fields.choice("endpoint",
                {kBatchChatUrl, kBatchCompletionsUrl, kBatchResponsesUrl, kBatchEmbeddingsUrl});
  batch.endpoint = fields.string("endpoint").value_or("");
  batch.lifetime_s = read_window(fields);
  if (const json::Value* metadata = api::read_metadata(fields)) batch.metadata = metadata->dump();
  if (problem) return *problem;
  return batch;
}

ParsedLine parse_batch_line(std::string_view text, std::string_view url) {
  ParsedLine line;
  const auto refuse = [&line](std::string_view code, std::string_view message,
                              bool fails_batch = false) {
    line.problems.push_back({code, message, fails_batch});
  };
  auto parsed = json::parse(text);
  auto* object = std::get_if<json::Value>(&parsed);
  if (object == nullptr || !object->is_object()) {
    refuse("invalid_json_line", "This line is not parseable as a JSON object.");
    return line;
  }
  std::string custom_id = text_field(*object, "custom_id");
  if (custom_id.empty() || custom_id.size() > kMaxCustomIdBytes) {
    refuse("invalid_custom_id", "custom_id must be a string of 1 to 512 bytes.");
    return line;
  }
  line.custom_id = std::move(custom_id);
  if (text_field(*object, "method") != "POST") {
    refuse("invalid_method", "The method must be POST.", true);
  }
  if (text_field(*object, "url") != url) {
    refuse("mismatched_url", "The url is not the endpoint of the batch.", true);
  }
  const auto body = object->find("body");
  if (body == object->end() || !body->is_object()) {
    refuse("invalid_body", "The body must be a JSON object.");
    return line;
  }
  line.body = std::move(*body);
  line.model = text_field(line.body, "model");
  if (line.model.size() > api::kMaxNameBytes) line.model.clear();  // its run says so
  return line;
}

LineResult refusal(const LineProblem& problem) {
  return {400, "",
          fmt::format(R"({{"error":{{"code":"{}","message":"{}","param":null,)"
                      R"("type":"invalid_request_error"}}}})",
                      problem.code, problem.message)};
}

LineResult failed_line(const api::Error& error) {
  return {error.status, "", api::error_body(api::Dialect::kOpenAi, error)};
}

}  // namespace skein
