#include "server/batch/batch_validator.h"

#include <algorithm>
#include <exception>
#include <utility>

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
    // kNotFound: it was cancelled meanwhile.
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
    return store_.batches().fail(batch.seq, {{"input_file_missing", "The input file is gone.", 0}});
  }
  SKEIN_TRY(file.status());
  SKEIN_ASSIGN(const BatchInput input,
               read_batch_input(*file, batch.record.endpoint, [this] { return stopping(); }));
  if (!input.errors.empty()) return store_.batches().fail(batch.seq, input.errors);
  return insert(batch.seq, input.lines);
}

Status BatchValidator::insert(int64_t batch, std::span<const InputLine> lines) {
  for (int64_t left = kPieceLines; left == kPieceLines;) {
    if (stopping()) return unavailable("the server stops");
    SKEIN_ASSIGN(left, store_.batches().discard_lines(batch, kPieceLines));
  }
  for (; !lines.empty(); lines = lines.subspan(std::min<size_t>(kPieceLines, lines.size()))) {
    if (stopping()) return unavailable("the server stops");
    SKEIN_TRY(store_.batches().insert_lines(
        batch, lines.first(std::min<size_t>(kPieceLines, lines.size()))));
  }
  return store_.batches().begin(batch);
}

}  // namespace skein
