#include "server/batch/batch_runner.h"

#include <algorithm>
#include <set>
#include <utility>

#include "base/log.h"
#include "server/batch/batch_output.h"
#include "server/store/batch_attempts.h"

namespace skein {
namespace {

constexpr int64_t kPageLines = 64;
constexpr int64_t kDroppedLines = 512;
constexpr int64_t kMaxSuspects = 4096;  // more than ever run at a time
constexpr int64_t kCountEveryS = 30;
// How long a batch (or, when the store fails, all of them) waits after a fault.
constexpr TimeUs kRetryAfterUs = 2 * kUsPerSecond;
constexpr const char* kUnreadableLine =
    R"({"error": {"message": "The line can no longer be read.", "type": "api_error", )"
    R"("param": null, "code": "input_unreadable"}})";

}  // namespace

BatchRunner::BatchRunner(Store& store, const Clock& clock)
    : store_(store), clock_(clock), validator_(store) {}

Result<BatchWork> BatchRunner::next_lines(size_t n) {
  using Batches = std::vector<OpenBatch>;
  SKEIN_ASSIGN(const Batches open, await<Batches>([this](Done<Batches> done) {
                 store_.thread().read<Batches>(open_batches, std::move(done));
               }));
  BatchWork work;
  forget_ended(open, work);
  count_time(open);
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
  const std::lock_guard lock(returned_->mutex);
  for (const std::string& ended : work.ended) {
    std::erase_if(returned_->out, [&ended](const auto& line) { return line.first == ended; });
  }
}

// Adds what has passed to the batches that have not ended, now and then.
void BatchRunner::count_time(const std::vector<OpenBatch>& open) {
  std::map<int64_t, TimeUs> counted;
  std::vector<std::pair<int64_t, int64_t>> seconds;
  for (const OpenBatch& batch : open) {
    const BatchStatus status = batch.record.status;
    if (status != BatchStatus::kValidating && status != BatchStatus::kInProgress) continue;
    const auto known = counted_until_us_.find(batch.seq);
    const TimeUs until = known == counted_until_us_.end() ? clock_.now() : known->second;
    counted[batch.seq] = until;
    const int64_t passed_s = (clock_.now() - until) / kUsPerSecond;
    if (passed_s >= kCountEveryS) seconds.emplace_back(batch.seq, passed_s);
  }
  counted_until_us_ = std::move(counted);
  if (seconds.empty()) return;
  const Status written = write([seconds](Database& db) -> Status {
    for (const auto& [seq, passed_s] : seconds) SKEIN_TRY(add_served_time(db, seq, passed_s));
    return {};
  });
  if (!written.ok()) return;  // the next call tries again
  for (const auto& [seq, passed_s] : seconds) counted_until_us_[seq] += passed_s * kUsPerSecond;
}

// The time since the last count is in no row of `open` yet, or in all of those that are read next.
bool BatchRunner::is_expired(const OpenBatch& batch) const {
  const int64_t lifetime_s =
      batch.record.expires_at_s - batch.record.at_s(BatchStatus::kValidating);
  const auto counted = counted_until_us_.find(batch.seq);
  const TimeUs since_us = counted == counted_until_us_.end() ? 0 : clock_.now() - counted->second;
  return batch.served_s + since_us / kUsPerSecond >= lifetime_s;
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
  if (is_expired(batch)) return finalize_as(BatchStatus::kExpired);
  if (record.status == BatchStatus::kValidating) return validator_.offer(batch);
  if (record.completed_lines + record.failed_lines == record.total_lines) {
    return finalize_as(BatchStatus::kCompleted);
  }
  return join(batch);
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
  bool idle = false;
  {
    const std::lock_guard lock(returned_->mutex);
    idle = returned_->out.empty();
    if (returned_->alone && !idle) return;
    returned_->alone = false;
  }
  if (n == 0) return;
  // Suspects run alone: they wait for what runs, and nothing else begins before them.
  const auto suspect = hand_out_suspect(idle, work);
  if (suspect.ok() && !*suspect) fill(n, work);
  const bool alone = suspect.ok() && *suspect;
  const Status marked = suspect.ok() ? mark(work, alone) : suspect.status();
  if (marked.ok()) return;
  log_warning("batches: no line begins for now: {}", marked.message());
  const std::lock_guard lock(returned_->mutex);
  for (const BatchLine& line : work.lines) returned_->lines[line.batch].push_back(line.line);
  returned_->not_before_us = clock_.now() + kRetryAfterUs;
  work.lines.clear();
}

// Notes before they run which lines do.
Status BatchRunner::mark(const BatchWork& work, bool alone) {
  if (work.lines.empty()) return {};
  std::vector<LineName> names;
  for (const BatchLine& line : work.lines) {
    for (const auto& [seq, running] : running_) {
      if (running.batch.record.id == line.batch) names.push_back({seq, line.line});
    }
  }
  SKEIN_TRY(await_status([&](DoneStatus done) {
    store_.thread().write([names, alone](Database& db) { return mark_running(db, names, alone); },
                          std::move(done));
    store_.thread().hurry();
  }));
  const std::lock_guard lock(returned_->mutex);
  for (const BatchLine& line : work.lines) returned_->out.emplace(line.batch, line.line);
  returned_->alone = alone;
  return {};
}

// Whether there is a suspect whose turn it is; hands it out when it may run.
Result<bool> BatchRunner::hand_out_suspect(bool may_run, BatchWork& work) {
  using Suspects = std::vector<SuspectLine>;
  if (!has_suspects_) return false;
  SKEIN_ASSIGN(const Suspects suspects, await<Suspects>([this](Done<Suspects> done) {
                 store_.thread().read<Suspects>(
                     [](Database& db) { return suspect_lines(db, kMaxSuspects); }, std::move(done));
               }));
  has_suspects_ = !suspects.empty();
  for (const SuspectLine& suspect : suspects) {
    const auto running = running_.find(suspect.seq);
    if (running == running_.end() || clock_.now() < running->second.rests_until_us) continue;
    if (!may_run) return true;
    auto line = line_of(running->second, suspect.line);
    if (!line.ok()) {
      refuse_line(running->second, suspect.line.line, line.status());
      continue;
    }
    running->second.handed_out = true;
    work.lines.push_back(std::move(*line));
    return true;
  }
  return false;
}

void BatchRunner::fill(size_t n, BatchWork& work) {
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
      refuse_line(running, (*next)->line, line.status());
    }
  }
  return false;
}

// Its text cannot be had, now or later: that is its result.
void BatchRunner::refuse_line(const Running& running, int64_t line, const Status& why) {
  log_error("batch {}, line {}: {}", running.batch.record.id, line, why.message());
  finish_line(running.batch.record.id, line, {500, "", kUnreadableLine}, [](const Status&) {});
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
                          {
                            const std::lock_guard lock(returned->mutex);
                            returned->out.erase({batch, line});
                            if (!settled) {
                              returned->lines[batch].push_back(line);
                              returned->not_before_us = later_us;
                            }
                          }
                          done(std::move(status));
                        });
}

void BatchRunner::return_line(const std::string& batch, int64_t line, TimeUs rest_us) {
  store_.thread().write([batch, line](Database& db) { return unmark_running(db, batch, line); },
                        [](const Status&) {});
  const std::lock_guard lock(returned_->mutex);
  returned_->out.erase({batch, line});
  returned_->lines[batch].push_back(line);
  TimeUs& rests_until_us = returned_->rests_until_us[batch];
  rests_until_us = std::max(rests_until_us, clock_.now() + rest_us);
}

void BatchRunner::forget_running() {
  {
    const std::lock_guard lock(returned_->mutex);
    if (returned_->out.empty()) return;
    returned_->out.clear();
  }
  const Status status = write(unmark_all);
  if (!status.ok()) log_warning("batches: {}", status.message());
}

void BatchRunner::stop() {
  if (stopped_) return;
  stopped_ = true;
  validator_.stop();
  forget_running();
}

Status BatchRunner::write(std::function<Status(Database&)> job) {
  return await_status(
      [&](DoneStatus done) { store_.thread().write(std::move(job), std::move(done)); });
}

}  // namespace skein
