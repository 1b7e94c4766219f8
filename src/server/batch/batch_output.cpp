#include "server/batch/batch_output.h"

#include <algorithm>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

namespace skein {
namespace {

// Results may be long: few at a time bound the memory.
constexpr int64_t kPageResults = 32;

std::string quoted(const std::string& text) {
  using Json = nlohmann::json;
  return Json(text).dump(-1, ' ', false, Json::error_handler_t::replace);
}

// A raw line break in JSON text is white space; in JSONL it would end the line.
std::string on_one_line(std::string json) {
  std::replace_if(
      json.begin(), json.end(), [](char c) { return c == '\n' || c == '\r'; }, ' ');
  return json;
}

std::string json_line(const std::string& batch, const OutputLine& line) {
  const std::string head =
      fmt::format(R"({{"id": "batch_req_{}_{}", "custom_id": {}, )", batch.substr(6), line.line,
                  line.custom_id.empty() ? "null" : quoted(line.custom_id));
  if (line.result.status_code == 0) {
    return head + R"("response": null, "error": {"code": "batch_expired", "message": )"
                  R"("This request could not be executed before the completion window expired."}})"
                  "\n";
  }
  const std::string headers =
      line.result.headers.empty() ? "" : R"(, "headers": )" + on_one_line(line.result.headers);
  return head + fmt::format(R"("response": {{"status_code": {}, "request_id": {}, "body": {}{}}}, )"
                            R"("error": null}})"
                            "\n",
                            line.result.status_code, quoted(line.result.request_id),
                            on_one_line(line.result.body), headers);
}

// One of the two files; it begins to exist with its first line.
class OutputFile {
 public:
  OutputFile(const FileStore& files, const BatchRecord& batch, const char* kind)
      : files_(files), batch_(batch), kind_(kind) {}

  Status append(const std::string& text) {
    if (writer_ == nullptr) {
      SKEIN_ASSIGN(writer_, files_.create_output(batch_.owner));
    }
    return writer_->append(text);
  }
  Status sync() { return writer_ == nullptr ? Status{} : writer_->sync(); }
  void keep() {
    if (writer_ != nullptr) writer_->keep();
  }
  // Without an id when there is no file.
  FileRecord record(int64_t now_s) const {
    if (writer_ == nullptr) return {};
    return {writer_->id(),    batch_.owner,
            "batch_output",   fmt::format("{}_{}.jsonl", batch_.id, kind_),
            writer_->bytes(), now_s};
  }

 private:
  const FileStore& files_;
  const BatchRecord& batch_;
  const char* kind_;
  std::unique_ptr<FileWriter> writer_;
};

Status write_lines(BatchStore& batches, const OpenBatch& batch, bool list_unrun, OutputFile& output,
                   OutputFile& errors) {
  for (int64_t after = 0;;) {
    SKEIN_ASSIGN(const std::vector<OutputLine> lines,
                 batches.output_lines(batch.seq, after, kPageResults));
    if (lines.empty()) return {};
    for (const OutputLine& line : lines) {
      const int32_t code = line.result.status_code;
      if (code == 0 && !list_unrun) continue;
      SKEIN_TRY(
          (code >= 200 && code < 300 ? output : errors).append(json_line(batch.record.id, line)));
    }
    after = lines.back().line;
  }
}

}  // namespace

Status finalize_batch(Store& store, const OpenBatch& batch) {
  const BatchStatus outcome =
      batch.record.status == BatchStatus::kCancelling ? BatchStatus::kCancelled : batch.outcome;
  OutputFile output(store.files(), batch.record, "output");
  OutputFile errors(store.files(), batch.record, "error");
  // What a validation left that was cut short is no part of the batch.
  if (batch.record.total_lines > 0) {
    SKEIN_TRY(
        write_lines(store.batches(), batch, outcome == BatchStatus::kExpired, output, errors));
  }
  SKEIN_TRY(output.sync());
  SKEIN_TRY(errors.sync());
  const int64_t now_s = store.unix_time_s();
  SKEIN_TRY(store.batches().end(store.epoch(), batch, outcome, output.record(now_s),
                                errors.record(now_s)));
  output.keep();
  errors.keep();
  return {};
}

}  // namespace skein
