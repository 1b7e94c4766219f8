#include "server/store/batch_runner.h"

#include <algorithm>
#include <set>
#include <utility>

#include "base/log.h"
#include "server/store/batch_input.h"
#include "server/store/batch_output.h"

namespace skein {
namespace {

constexpr int64_t kPageLines = 64;
constexpr int64_t kDroppedLines = 512;
// How long a batch (or, when the store fails, all of them) waits after a fault.
constexpr TimeUs kRetryAfterUs = 2 * kUsPerSecond;
constexpr const char* kUnreadableLine =
    R"({"error": {"message": "The line can no longer be read.", "type": "api_error", )"
    R"("param": null, "code": "input_unreadable"}})";

}  // namespace

BatchRunner::BatchRunner(Store& store, const Clock& clock) : store_(store), clock_(clock) {}

Result<BatchWork> BatchRunner::next_lines(size_t n) {
  using Batches = std::vector<OpenBatch>;
  SKEIN_ASSIGN(const Batches open, await<Batches>([this](Done<Batches> done) {
                 store_.thread().read<Batches>(open_batches, std::move(done));
               }));
  BatchWork work;
  forget_ended(open, work);
  for (const OpenBatch& batch : open) advance(batch);
  if (take_returned()) hand_out(n, work);
  return work;
}

void BatchRunner::forget_ended(const std::vector<OpenBatch>& open, BatchWork& work) {
  std::set<int64_t> in_progress;
  std::set<std::string> ids;
  for (const OpenBatch& batch : open) {
    if (batch.record.status == BatchStatus::kInProgress) in_progress.insert(batch.seq);
    ids.insert(batch.record.id);
  }
  std::erase_if(retry_at_us_, [&ids](const auto& entry) { return !ids.contains(entry.first); });
  std::erase_if(running_, [&](const auto& entry) {
    if (in_progress.contains(entry.first)) return false;
    if (entry.second.handed_out) work.ended.push_back(entry.second.batch.record.id);
    return true;
  });
}

void BatchRunner::advance(const OpenBatch& batch) {
  const std::string& id = batch.record.id;
  const auto retry = retry_at_us_.find(id);
  if (retry != retry_at_us_.end() && clock_.now() < retry->second) return;
  const Status status = take_step(batch);
  if (status.ok()) {
    retry_at_us_.erase(id);
    return;
  }
  log_warning("batch {} is {} and cannot go on for now: {}", id, name_of(batch.record.status),
              status.message());
  retry_at_us_[id] = clock_.now() + kRetryAfterUs;
}

Status BatchRunner::take_step(const OpenBatch& batch) {
  const BatchRecord& record = batch.record;
  const int64_t now_s = store_.unix_time_s();
  const auto finalize_as = [&](BatchStatus outcome) {
    return write([seq = batch.seq, outcome, now_s](Database& db) {
      return start_finalizing(db, seq, outcome, now_s);
    });
  };
  if (record.status == BatchStatus::kFinalizing || record.status == BatchStatus::kCancelling) {
    return finalize_batch(store_.thread(), store_.files(), batch, now_s);
  }
  if (!is_live(record.status)) {
    return write([seq = batch.seq](Database& db) { return drop_lines(db, seq, kDroppedLines); });
  }
  if (now_s >= record.expires_at_s) return finalize_as(BatchStatus::kExpired);
  if (record.status == BatchStatus::kValidating) return validate(batch);
  if (record.completed_lines + record.failed_lines == record.total_lines) {
    return finalize_as(BatchStatus::kCompleted);
  }
  return join(batch);
}

Status BatchRunner::validate(const OpenBatch& batch) {
  const int64_t now_s = store_.unix_time_s();
  const auto file = store_.file_folder().open(batch.record.input_file);
  if (file.status().code() == Code::kDataLoss) {
    return write([seq = batch.seq, now_s](Database& db) {
      return fail_batch(db, seq, {{"input_file_missing", "The input file is gone.", 0}}, now_s);
    });
  }
  SKEIN_TRY(file.status());
  SKEIN_ASSIGN(BatchInput read, read_batch_input(*file, batch.record.endpoint));
  const auto input = std::make_shared<const BatchInput>(std::move(read));
  return write([seq = batch.seq, input, now_s](Database& db) {
    if (!input->errors.empty()) return fail_batch(db, seq, input->errors, now_s);
    return begin_batch(db, seq, input->lines, now_s);
  });
}

Status BatchRunner::join(const OpenBatch& batch) {
  if (running_.contains(batch.seq)) return {};
  SKEIN_ASSIGN(OwnedFd input, store_.file_folder().open(batch.record.input_file));
  Running& running = running_[batch.seq];
  running.batch = batch;
  running.input = std::move(input);
  return {};
}

bool BatchRunner::take_returned() {
  const std::lock_guard lock(returned_->mutex);
  if (clock_.now() < returned_->not_before_us) return false;
  for (auto& [seq, running] : running_) {
    const auto lines = returned_->lines.find(running.batch.record.id);
    if (lines == returned_->lines.end()) continue;
    running.returned.insert(running.returned.end(), lines->second.begin(), lines->second.end());
    running.rests_until_us = returned_->rests_until_us[running.batch.record.id];
  }
  returned_->lines.clear();
  returned_->rests_until_us.clear();
  return true;
}

void BatchRunner::hand_out(size_t n, BatchWork& work) {
  std::set<std::string> owners;
  for (const auto& [seq, running] : running_) owners.insert(running.batch.record.owner);
  while (work.lines.size() < n && !owners.empty()) {
    auto owner = owners.upper_bound(last_owner_);
    if (owner == owners.end()) owner = owners.begin();
    last_owner_ = *owner;
    if (!hand_out_one(*owner, work)) owners.erase(owner);
  }
}

// One line of the owner's oldest batch that has any; false when none has.
bool BatchRunner::hand_out_one(const std::string& owner, BatchWork& work) {
  for (auto& [seq, running] : running_) {
    if (running.batch.record.owner != owner || clock_.now() < running.rests_until_us) continue;
    for (;;) {
      const auto next = next_of(running);
      if (!next.ok()) log_warning("batch {}: {}", running.batch.record.id, next.message());
      if (!next.ok() || !next->has_value()) break;
      auto line = line_of(running, **next);
      if (line.ok()) {
        running.handed_out = true;
        work.lines.push_back(std::move(*line));
        return true;
      }
      // Its text cannot be had, now or later: that is its result.
      log_error("batch {}, line {}: {}", running.batch.record.id, (*next)->line, line.message());
      finish_line(running.batch.record.id, (*next)->line, {500, "", kUnreadableLine},
                  [](const Status&) {});
    }
  }
  return false;
}

Result<std::optional<InputLine>> BatchRunner::next_of(Running& running) {
  using Next = std::optional<InputLine>;
  while (!running.returned.empty()) {
    const int64_t number = running.returned.back();
    SKEIN_ASSIGN(const std::vector<InputLine> lines, pending(running, number, 1));
    running.returned.pop_back();
    if (!lines.empty() && lines.front().line == number) return Next(lines.front());
  }
  if (running.page.empty() && !running.exhausted) {
    SKEIN_ASSIGN(const std::vector<InputLine> lines, pending(running, running.next, kPageLines));
    running.exhausted = lines.empty();
    if (!lines.empty()) running.next = lines.back().line + 1;
    running.page.assign(lines.begin(), lines.end());
  }
  if (running.page.empty()) return Next();
  Next next = std::move(running.page.front());
  running.page.pop_front();
  return next;
}

Result<std::vector<InputLine>> BatchRunner::pending(const Running& running, int64_t from,
                                                    int64_t limit) {
  using Lines = std::vector<InputLine>;
  return await<Lines>([&](Done<Lines> done) {
    store_.thread().read<Lines>([seq = running.batch.seq, from, limit](
                                    Database& db) { return pending_lines(db, seq, from, limit); },
                                std::move(done));
  });
}

Result<BatchLine> BatchRunner::line_of(const Running& running, const InputLine& line) const {
  const BatchRecord& record = running.batch.record;
  SKEIN_ASSIGN(std::string text, read_part(running.input, line.offset, line.bytes));
  if (text.size() != line.bytes) {
    return data_loss("store: the input has {} of its {} bytes", text.size(), line.bytes);
  }
  return BatchLine{record.id,      record.owner,    line.line,
                   line.custom_id, record.endpoint, std::move(text)};
}

void BatchRunner::finish_line(const std::string& batch, int64_t line, LineResult result,
                              DoneStatus done) {
  store_.thread().write([batch, line, result = std::move(result)](
                            Database& db) { return skein::finish_line(db, batch, line, result); },
                        [returned = returned_, later_us = clock_.now() + kRetryAfterUs, batch, line,
                         done = std::move(done)](Status status) {
                          const bool settled = status.ok() || status.code() == Code::kNotFound ||
                                               status.code() == Code::kAlreadyExists;
                          if (!settled) {
                            const std::lock_guard lock(returned->mutex);
                            returned->lines[batch].push_back(line);
                            returned->not_before_us = later_us;
                          }
                          done(std::move(status));
                        });
}

void BatchRunner::return_line(const std::string& batch, int64_t line, TimeUs rest_us) {
  const std::lock_guard lock(returned_->mutex);
  returned_->lines[batch].push_back(line);
  TimeUs& rests_until_us = returned_->rests_until_us[batch];
  rests_until_us = std::max(rests_until_us, clock_.now() + rest_us);
}

Status BatchRunner::write(std::function<Status(Database&)> job) {
  return await_status(
      [&](DoneStatus done) { store_.thread().write(std::move(job), std::move(done)); });
}

}  // namespace skein
