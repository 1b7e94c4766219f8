#include "server/batch/batch_validator.h"

#include <algorithm>
#include <exception>
#include <set>
#include <unordered_map>

#include "server/batch/batch_request.h"

namespace skein {
namespace {

constexpr size_t kReadBytes = size_t{1} << 20;
constexpr size_t kMaxErrors = 100;

bool is_blank(std::string_view text) {
  return text.find_first_not_of(" \t\r") == std::string_view::npos;
}

class InputReader {
 public:
  explicit InputReader(std::string_view endpoint) : endpoint_(endpoint) {}

  // `whole` is false for a line that is longer than kMaxLineBytes; `text` is then its beginning.
  void take(std::string_view text, uint64_t offset, bool whole) {
    ++number_;
    if (is_blank(text) && whole) return;
    if (input_.lines.size() == kMaxBatchLines) {
      if (!too_many_) fail("too_many_lines", "The file has more than 50000 requests.");
      too_many_ = true;
      return;
    }
    InputLine line{number_, "", offset, text.size(), {}, ""};
    const std::optional<LineProblem> problem =
        whole ? check(text, line) : LineProblem{"line_too_long", "The line is too long."};
    if (!problem) {
      ++usable_;
    } else {
      line.refusal = refusal(*problem);
      note(broken_, problem->code, std::string(problem->message));
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
  void note(std::vector<BatchError>& errors, std::string_view code, std::string message) const {
    if (errors.size() < kMaxErrors) {
      errors.push_back({std::string(code), std::move(message), number_});
    }
  }
  // The batch fails, and this line is why.
  void fail(std::string_view code, std::string message) {
    note(input_.errors, code, std::move(message));
  }

  // Why the line cannot be run, if it cannot.
  std::optional<LineProblem> check(std::string_view text, InputLine& line) {
    ParsedLine parsed = parse_batch_line(text, endpoint_);
    std::optional<LineProblem> broken;
    line.custom_id = std::move(parsed.custom_id);
    line.model = std::move(parsed.model);
    const auto [first, added] = seen_.try_emplace(line.custom_id, number_);
    if (!added && !line.custom_id.empty()) {
      fail("duplicate_custom_id",
           fmt::format("The custom_id is the same as that of line {}; it must be unique.",
                       first->second));
    }
    for (const LineProblem& problem : parsed.problems) {
      if (problem.fails_batch) {
        fail(problem.code, std::string(problem.message));
      } else {
        broken = problem;
      }
    }
    return broken;
  }

  const std::string endpoint_;
  BatchInput input_;
  std::vector<BatchError> broken_;                 // lines that cannot be run
  std::unordered_map<std::string, int64_t> seen_;  // custom_id -> its first line
  int64_t number_ = 0;
  size_t usable_ = 0;
  bool too_many_ = false;
};

// Splits what comes in pieces into lines; holds at most one line and one piece.
class LineSplitter {
 public:
  explicit LineSplitter(InputReader& reader) : reader_(reader) {}

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
  InputReader& reader_;
  std::string line_;
  uint64_t start_ = 0;
  uint64_t length_ = 0;
  bool whole_ = true;
};

constexpr int64_t kPieceLines = 512;

}  // namespace

Result<BatchInput> read_batch_input(const FileReader& file, std::string_view endpoint,
                                    const std::function<bool()>& stop) {
  InputReader reader(endpoint);
  LineSplitter splitter(reader);
  for (uint64_t offset = 0;;) {
    if (stop && stop()) return unavailable("the server stops");
    SKEIN_ASSIGN(const std::string piece, file.read(offset, kReadBytes));
    if (piece.empty()) break;
    splitter.feed(piece);
    offset += piece.size();
  }
  splitter.end_line(0);
  return std::move(reader).finish();
}

Status BatchValidator::offer(const OpenBatch& batch) {
  const std::lock_guard lock(mutex_);
  if (const auto failure = failures_.extract(batch.record.id)) return failure.mapped();
  if (batch_ || stopping_) return {};
  try {
    if (!thread_.joinable()) thread_ = std::thread([this] { run(); });
    batch_ = batch;
  } catch (const std::exception& error) {
    return unavailable("no thread to validate a batch: {}", error.what());
  }
  changed_.notify_all();
  return {};
}

void BatchValidator::stop() {
  {
    const std::lock_guard lock(mutex_);
    stopping_ = true;
    changed_.notify_all();
  }
  if (thread_.joinable()) thread_.join();
}

bool BatchValidator::stopping() {
  const std::lock_guard lock(mutex_);
  return stopping_;
}

void BatchValidator::run() {
  std::unique_lock lock(mutex_);
  for (;;) {
    changed_.wait(lock, [this] { return stopping_ || batch_; });
    if (stopping_) return;
    const OpenBatch batch = *batch_;
    lock.unlock();
    Status status;
    try {
      status = validate(batch);
    } catch (const std::exception& error) {  // no memory, as a rule
      status = unavailable("{}", error.what());
    }
    lock.lock();
    // kNotFound: it was cancelled meanwhile, or is another server's now.
    if (!status.ok() && status.code() != Code::kNotFound) failures_[batch.record.id] = status;
    batch_.reset();
    lock.unlock();
    done_();
    lock.lock();
  }
}

Status BatchValidator::validate(const OpenBatch& batch) {
  const auto file = store_.contents().open(batch.record.input_file);
  if (file.status().code() == Code::kDataLoss) {
    return store_.batches().fail(store_.epoch(), batch.seq,
                                 {{"input_file_missing", "The input file is gone.", 0}});
  }
  SKEIN_TRY(file.status());
  SKEIN_ASSIGN(BatchInput input,
               read_batch_input(**file, batch.record.endpoint, [this] { return stopping(); }));
  if (!input.errors.empty()) {
    return store_.batches().fail(store_.epoch(), batch.seq, input.errors);
  }
  std::set<std::string> served = {""};  // one that names none gets the server's own
  for (std::string& id : models_()) served.insert(std::move(id));
  for (InputLine& line : input.lines) {
    if (line.refusal.status_code != 0 || served.contains(line.model)) continue;
    line.refusal = failed_line(api::model_not_found(line.model));
  }
  return insert(batch.seq, input.lines);
}

Status BatchValidator::insert(int64_t batch, std::span<const InputLine> lines) {
  for (int64_t left = kPieceLines; left == kPieceLines;) {
    if (stopping()) return unavailable("the server stops");
    SKEIN_ASSIGN(left, store_.batches().discard_lines(store_.epoch(), batch, kPieceLines));
  }
  for (; !lines.empty(); lines = lines.subspan(std::min<size_t>(kPieceLines, lines.size()))) {
    if (stopping()) return unavailable("the server stops");
    SKEIN_TRY(store_.batches().insert_lines(
        store_.epoch(), batch, lines.first(std::min<size_t>(kPieceLines, lines.size()))));
  }
  return store_.batches().begin(store_.epoch(), batch);
}

}  // namespace skein
