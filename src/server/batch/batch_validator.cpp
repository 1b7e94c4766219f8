#include "server/batch/batch_validator.h"

#include <exception>
#include <functional>
#include <memory>
#include <span>
#include <utility>

namespace skein {
namespace {

constexpr size_t kPieceLines = 512;

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
  }
}

Status BatchValidator::validate(const OpenBatch& batch) {
  const auto fail = [&](std::vector<BatchError> errors) {
    return write([seq = batch.seq, errors = std::move(errors), now_s = store_.unix_time_s()](
                     Database& db) { return fail_batch(db, seq, errors, now_s); });
  };
  const auto file = store_.file_folder().open(batch.record.input_file);
  if (file.status().code() == Code::kDataLoss) {
    return fail({{"input_file_missing", "The input file is gone.", 0}});
  }
  SKEIN_TRY(file.status());
  SKEIN_ASSIGN(BatchInput input,
               read_batch_input(*file, batch.record.endpoint, [this] { return stopping(); }));
  if (!input.errors.empty()) return fail(std::move(input.errors));
  return insert(batch.seq, std::move(input));
}

Status BatchValidator::insert(int64_t seq, BatchInput input) {
  for (int64_t left = kPieceLines; left == kPieceLines;) {
    if (stopping()) return unavailable("the server stops");
    SKEIN_ASSIGN(left, await<int64_t>([&](Done<int64_t> done) {
                   store_.thread().write<int64_t>(
                       [seq](Database& db) { return discard_lines(db, seq, kPieceLines); },
                       std::move(done));
                 }));
  }
  const auto lines = std::make_shared<const std::vector<InputLine>>(std::move(input.lines));
  for (size_t from = 0; from < lines->size(); from += kPieceLines) {
    if (stopping()) return unavailable("the server stops");
    const size_t count = std::min(kPieceLines, lines->size() - from);
    SKEIN_TRY(write([seq, lines, from, count](Database& db) {
      return insert_lines(db, seq, std::span(*lines).subspan(from, count));
    }));
  }
  return write(
      [seq, now_s = store_.unix_time_s()](Database& db) { return begin_batch(db, seq, now_s); });
}

Status BatchValidator::write(std::function<Status(Database&)> job) {
  return await_status(
      [&](DoneStatus done) { store_.thread().write(std::move(job), std::move(done)); });
}

}  // namespace skein
