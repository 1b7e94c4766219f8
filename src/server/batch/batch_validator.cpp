#include "server/batch/batch_validator.h"

#include <algorithm>
#include <exception>
#include <set>
#include <utility>

#include "server/batch/batch_request.h"

namespace skein {
namespace {

constexpr int64_t kPieceLines = 512;

}  // namespace

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
  const auto file = store_.file_folder().open(batch.record.input_file);
  if (file.status().code() == Code::kDataLoss) {
    return store_.batches().fail(store_.epoch(), batch.seq,
                                 {{"input_file_missing", "The input file is gone.", 0}});
  }
  SKEIN_TRY(file.status());
  SKEIN_ASSIGN(BatchInput input,
               read_batch_input(*file, batch.record.endpoint, [this] { return stopping(); }));
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
