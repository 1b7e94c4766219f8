#include "server/batch/batch_runner.h"

#include <chrono>
#include <set>
#include <utility>

#include "base/log.h"
#include "server/batch/batch_output.h"

namespace skein {
namespace {

constexpr int64_t kDroppedLines = 512;
// How often a server looks for what others that share its store have left.
constexpr TimeUs kLookAtOthersUs = 1 * kUsPerSecond;

}  // namespace

BatchRunner::BatchRunner(Store& store, const Clock& clock, BatchValidator::Models models)
    : store_(store),
      clock_(clock),
      epoch_(store.epoch()),
      models_(std::move(models)),
      lifetimes_(store, clock),
      validator_(store, models_, [this] { wake(); }) {
  store_.batches().watch([this] { wake(); });
}

bool BatchRunner::wait() {
  std::unique_lock lock(mutex_);
  const auto happened = [this] { return closed_ || woken_; };
  if (due_us_ == kNever) {
    changed_.wait(lock, happened);
  } else {
    changed_.wait_for(lock, std::chrono::microseconds(due_us_ - clock_.now()), happened);
  }
  woken_ = false;
  return !closed_;
}

void BatchRunner::wake() {
  const std::lock_guard lock(mutex_);
  woken_ = true;
  changed_.notify_all();
}

void BatchRunner::close() {
  const std::lock_guard lock(mutex_);
  closed_ = true;
  changed_.notify_all();
}

// A server that took over has begun a new epoch, or others have ended this one's. What this one
// still does would be refused; the lines that run here are the other one's to run.
bool BatchRunner::has_lost_epoch(const Status& status) {
  if (lost_ || status.code() != Code::kNotFound) return lost_;
  lost_ = store_.batches().renew(epoch_, {}).code() == Code::kNotFound;
  if (!lost_) return false;
  log_error("batches: epoch {} has ended, so other servers have taken its lines over", epoch_);
  due_us_ = store_.is_shared() ? clock_.now() : kNever;
  in_progress_.clear();
  cancel_running([](const LineId&) { return true; });
  const std::lock_guard lock(mutex_);
  returned_.clear();
  return true;
}

bool BatchRunner::begin_new_epoch() {
  if (!store_.is_shared()) return false;
  const auto epoch = store_.begin_new_epoch();
  if (!epoch.ok()) {
    log_warning("batches: none runs here for now: {}", epoch.message());
    return false;
  }
  epoch_ = *epoch;
  lost_ = false;
  has_suspects_ = true;
  log_info("batches: go on in epoch {}", epoch_);
  return true;
}

// What other servers had may be nobody's now, without a word about it.
void BatchRunner::look_at_others() {
  if (!store_.is_shared() || in_progress_.empty()) return;
  if (clock_.now() >= look_at_others_us_) {
    look_at_others_us_ = clock_.now() + kLookAtOthersUs;
    has_suspects_ = true;
    for (auto& [seq, batch] : in_progress_) batch.exhausted = false;
  }
  look_again_at(look_at_others_us_);
}

Result<std::vector<BatchLine>> BatchRunner::next_lines(size_t n) {
  if (store_.has_lost_epoch()) (void)has_lost_epoch(not_found("the lease has ended"));
  if (lost_ && !begin_new_epoch()) {
    due_us_ = store_.is_shared() ? clock_.now() + kBatchRetryAfterUs : kNever;
    return std::vector<BatchLine>();
  }
  due_us_ = clock_.now() + kBatchRetryAfterUs;  // where the store cannot be read
  SKEIN_ASSIGN(std::vector<OpenBatch> open, store_.batches().open_batches());
  due_us_ = kNever;
  forget_ended(open);
  if (const Status counted = lifetimes_.count(open); counted.ok()) {
    look_again_at(lifetimes_.next_count_us());
  } else if (!has_lost_epoch(counted)) {
    log_warning("batches: {}", counted.message());
    look_again_at(clock_.now() + kBatchRetryAfterUs);
  }
  for (const OpenBatch& batch : open) {
    if (!lost_) advance(batch);
  }
  std::vector<BatchLine> lines;
  if (!lost_) look_at_others();
  if (!lost_ && give_back()) hand_out(n, lines);
  return lines;
}

void BatchRunner::forget_ended(const std::vector<OpenBatch>& open) {
  std::set<int64_t> going;
  std::set<int64_t> known;
  for (const OpenBatch& batch : open) {
    if (batch.record.status == BatchStatus::kInProgress) going.insert(batch.seq);
    known.insert(batch.seq);
  }
  std::erase_if(retry_at_us_, [&](const auto& entry) { return !known.contains(entry.first); });
  std::erase_if(in_progress_, [&](const auto& entry) { return !going.contains(entry.first); });
  cancel_running([&](const LineId& line) { return !going.contains(line.batch); });
}

void BatchRunner::advance(const OpenBatch& batch) {
  const auto retry = retry_at_us_.find(batch.seq);
  if (retry != retry_at_us_.end() && clock_.now() < retry->second) {
    return look_again_at(retry->second);
  }
  const Status status = take_step(batch);
  if (status.ok()) {
    retry_at_us_.erase(batch.seq);
    return;
  }
  if (has_lost_epoch(status)) return;
  log_warning("batch {} is {} and cannot go on for now: {}", batch.record.id,
              name_of(batch.record.status), status.message());
  retry_at_us_[batch.seq] = clock_.now() + kBatchRetryAfterUs;
  look_again_at(retry_at_us_[batch.seq]);
}

Status BatchRunner::take_step(const OpenBatch& batch) {
  const BatchRecord& record = batch.record;
  const bool is_served =
      record.status == BatchStatus::kValidating || record.status == BatchStatus::kInProgress;
  const TimeUs ends_us = is_served ? lifetimes_.end_us(batch) : kNever;
  look_again_at(ends_us);
  const bool expired = clock_.now() >= ends_us;
  const bool all_ended = record.status == BatchStatus::kInProgress &&
                         record.completed_lines + record.failed_lines == record.total_lines;
  if (is_served && !expired && !all_ended) {
    return record.status == BatchStatus::kValidating ? take_on(batch) : join(batch);
  }
  if (is_served) {
    look_again_at(clock_.now());  // the next step follows this one
    return store_.batches().finalize(epoch_, batch.seq,
                                     expired ? BatchStatus::kExpired : BatchStatus::kCompleted);
  }
  return take_on(batch);
}

// Does the part of a batch that one server does: of several, the one that has taken it.
Status BatchRunner::take_on(const OpenBatch& batch) {
  if (store_.is_shared()) {
    SKEIN_ASSIGN(const bool is_ours, store_.batches().take(epoch_, batch));
    if (!is_ours) {
      look_again_at(clock_.now() + kLookAtOthersUs);
      return {};
    }
  }
  if (batch.record.status == BatchStatus::kValidating) return validator_.offer(batch);
  look_again_at(clock_.now());
  if (is_live(batch.record.status)) return finalize_batch(store_, batch);
  return store_.batches().drop_lines(epoch_, batch.seq, kDroppedLines);
}

Status BatchRunner::join(const OpenBatch& batch) {
  if (in_progress_.contains(batch.seq)) return {};
  SKEIN_ASSIGN(auto input, store_.contents().open(batch.record.input_file));
  InProgress& joined = in_progress_[batch.seq];
  joined.batch = batch;
  joined.input = std::move(input);
  return {};
}

// What was returned is nobody's in the store as well.
bool BatchRunner::give_back() {
  std::map<LineId, TimeUs> returned;
  {
    const std::lock_guard lock(mutex_);
    not_before_us_ = std::max(not_before_us_, faulty_until_us_);
    if (clock_.now() >= not_before_us_) returned.swap(returned_);
  }
  if (clock_.now() < not_before_us_) {
    look_again_at(not_before_us_);
    return false;
  }
  if (returned.empty()) return true;
  std::vector<LineId> ids;
  ids.reserve(returned.size());
  for (const auto& [id, rests_until_us] : returned) ids.push_back(id);
  const Status status = store_.batches().return_lines(epoch_, ids);
  if (!status.ok()) {
    log_warning("batches: {}", status.message());
    not_before_us_ = clock_.now() + kBatchRetryAfterUs;
    look_again_at(not_before_us_);
    const std::lock_guard lock(mutex_);
    returned_.merge(returned);
    return false;
  }
  for (const auto& [id, rests_until_us] : returned) {
    const auto found = in_progress_.find(id.batch);
    if (found == in_progress_.end()) continue;
    InProgress& batch = found->second;
    batch.exhausted = false;
    batch.rests_until_us = std::max(batch.rests_until_us, rests_until_us);
  }
  return true;
}

}  // namespace skein
