#include "server/batch/batch_runner.h"

#include <chrono>
#include <set>
#include <utility>

#include "base/log.h"
#include "server/batch/batch_output.h"

namespace skein {
namespace {

constexpr int64_t kDroppedLines = 512;
constexpr int64_t kMaxSuspects = 4096;  // more than ever run at a time
// How long a batch (or, when the store fails, all of them) waits after a fault.
constexpr TimeUs kRetryAfterUs = 2 * kUsPerSecond;
constexpr const char* kUnreadableLine =
    R"({"error": {"message": "The line can no longer be read.", "type": "api_error", )"
    R"("param": null, "code": "input_unreadable"}})";

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

// A server that took over has begun a new epoch. What this one still does would be refused; the
// lines that run here are the other one's to run.
bool BatchRunner::has_lost_epoch(const Status& status) {
  if (lost_ || status.code() != Code::kNotFound) return lost_;
  lost_ = store_.batches().renew(epoch_, {}).code() == Code::kNotFound;
  if (!lost_) return false;
  log_error("batches: epoch {} has ended, so another server has taken them over; none runs here",
            epoch_);
  due_us_ = kNever;
  in_progress_.clear();
  cancel_running([](const LineId&) { return true; });
  const std::lock_guard lock(mutex_);
  returned_.clear();
  return true;
}

Result<std::vector<BatchLine>> BatchRunner::next_lines(size_t n) {
  if (lost_) {
    due_us_ = kNever;
    return std::vector<BatchLine>();
  }
  due_us_ = clock_.now() + kRetryAfterUs;  // where the store cannot be read
  SKEIN_ASSIGN(std::vector<OpenBatch> open, store_.batches().open_batches());
  due_us_ = kNever;
  forget_ended(open);
  if (const Status counted = lifetimes_.count(open); counted.ok()) {
    look_again_at(lifetimes_.next_count_us());
  } else if (!has_lost_epoch(counted)) {
    log_warning("batches: {}", counted.message());
    look_again_at(clock_.now() + kRetryAfterUs);
  }
  for (const OpenBatch& batch : open) {
    if (!lost_) advance(batch);
  }
  std::vector<BatchLine> lines;
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

// What cancelled lines still say is not heard.
template <class Which>
void BatchRunner::cancel_running(const Which& which) {
  std::vector<std::shared_ptr<LiveRequest>> cancelled;
  {
    const std::lock_guard lock(mutex_);
    std::erase_if(running_, [&](auto& entry) {
      if (entry.second.has_ended || !which(entry.first)) return false;
      cancelled.push_back(std::move(entry.second.request));
      return true;
    });
  }
  for (const auto& request : cancelled) {
    if (request != nullptr) request->cancel();
  }
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
  retry_at_us_[batch.seq] = clock_.now() + kRetryAfterUs;
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
    return record.status == BatchStatus::kValidating ? validator_.offer(batch) : join(batch);
  }
  look_again_at(clock_.now());  // the next step follows this one
  if (is_served) {
    return store_.batches().finalize(epoch_, batch.seq,
                                     expired ? BatchStatus::kExpired : BatchStatus::kCompleted);
  }
  if (is_live(record.status)) return finalize_batch(store_, batch);
  return store_.batches().drop_lines(epoch_, batch.seq, kDroppedLines);
}

Status BatchRunner::join(const OpenBatch& batch) {
  if (in_progress_.contains(batch.seq)) return {};
  SKEIN_ASSIGN(OwnedFd input, store_.file_folder().open(batch.record.input_file));
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
    not_before_us_ = clock_.now() + kRetryAfterUs;
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

void BatchRunner::hand_out(size_t n, std::vector<BatchLine>& lines) {
  bool idle = false;
  {
    const std::lock_guard lock(mutex_);
    idle = running_.empty() && returned_.empty();
    if (runs_alone_ && !idle) return;
    runs_alone_ = false;
  }
  if (n == 0) return;
  // What a line gives needs room on the disk, so lines wait for it.
  if (store_.space().is_low()) {
    if (!in_progress_.empty()) look_again_at(clock_.now() + kRetryAfterUs);
    return;
  }
  ask_models();
  // Suspects run alone: they wait for what runs, and nothing else begins before them.
  const auto suspect = hand_out_suspect(idle, lines);
  const Status claimed = suspect.ok() && !*suspect ? fill(n, lines) : suspect.status();
  if (claimed.ok() || has_lost_epoch(claimed)) return;
  log_warning("batches: no line begins for now: {}", claimed.message());
  not_before_us_ = clock_.now() + kRetryAfterUs;
  look_again_at(not_before_us_);
}

// A model that has come may be what lines wait for.
void BatchRunner::ask_models() {
  std::vector<std::string> models = models_();
  if (models == known_models_) return;
  known_models_ = std::move(models);
  has_suspects_ = true;
  for (auto& [seq, batch] : in_progress_) batch.exhausted = false;
}

// Whether there is a suspect whose turn it is; hands it out when it may run.
Result<bool> BatchRunner::hand_out_suspect(bool may_run, std::vector<BatchLine>& lines) {
  if (!has_suspects_) return false;
  SKEIN_ASSIGN(const std::vector<LinePlace> suspects,
               store_.batches().suspect_lines(known_models_, kMaxSuspects));
  if (suspects.empty() && may_run) has_suspects_ = false;  // none of them runs either
  for (const LinePlace& suspect : suspects) {
    const auto batch = in_progress_.find(suspect.id.batch);
    if (batch == in_progress_.end() || is_resting(batch->second)) continue;
    if (!may_run) return true;
    SKEIN_TRY(store_.batches().claim_suspect(epoch_, suspect.id));
    run_line(batch->second, suspect, lines);
    if (lines.empty()) continue;
    const std::lock_guard lock(mutex_);
    runs_alone_ = true;
    return true;
  }
  return false;
}

bool BatchRunner::is_resting(const InProgress& batch) {
  if (clock_.now() >= batch.rests_until_us) return false;
  look_again_at(batch.rests_until_us);
  return true;
}

// Lines that cannot be read count as well, so that a damaged input holds up nobody.
Status BatchRunner::fill(size_t n, std::vector<BatchLine>& lines) {
  for (size_t taken = 0; taken < n;) {
    const std::vector<LineShare> shares = share(n - taken);
    if (shares.empty()) return {};
    SKEIN_ASSIGN(const std::vector<LinePlace> places,
                 store_.batches().claim_lines(epoch_, shares, known_models_));
    taken += places.size();
    std::map<int64_t, int64_t> claimed;
    for (const LinePlace& place : places) {
      ++claimed[place.id.batch];
      run_line(in_progress_.at(place.id.batch), place, lines);
    }
    for (const LineShare& wanted : shares) {
      in_progress_.at(wanted.batch).exhausted = claimed[wanted.batch] < wanted.lines;
    }
  }
  return {};
}

// `n` lines, from the owners in turn, of each the oldest batch that may have any.
std::vector<LineShare> BatchRunner::share(size_t n) {
  std::map<std::string, LineShare> by_owner;
  for (const auto& [seq, batch] : in_progress_) {
    if (!batch.exhausted && !is_resting(batch))
      by_owner.try_emplace(batch.batch.record.owner, LineShare{seq, 0});
  }
  std::vector<LineShare> shares;
  if (by_owner.empty()) return shares;
  for (; n > 0; --n) {
    auto owner = by_owner.upper_bound(last_owner_);
    if (owner == by_owner.end()) owner = by_owner.begin();
    last_owner_ = owner->first;
    ++owner->second.lines;
  }
  for (const auto& [owner, wanted] : by_owner) {
    if (wanted.lines > 0) shares.push_back(wanted);
  }
  return shares;
}

// A line that is claimed. Where its text cannot be had, now or later, that is its result.
void BatchRunner::run_line(const InProgress& batch, const LinePlace& place,
                           std::vector<BatchLine>& lines) {
  {
    const std::lock_guard lock(mutex_);
    running_[place.id] = {};
  }
  const BatchRecord& record = batch.batch.record;
  auto text = read_part(batch.input, place.offset, place.bytes);
  if (text.ok() && text->size() == place.bytes) {
    lines.push_back({place.id, record.id, record.owner, record.endpoint, std::move(*text)});
    return;
  }
  log_error("batch {}, line {}: its text cannot be read: {}", record.id, place.id.line,
            text.ok() ? "the input is cut off" : text.message());
  finish_line(place.id, {500, "", kUnreadableLine}, [](const Status&) {});
}

size_t BatchRunner::running() const {
  const std::lock_guard lock(mutex_);
  return static_cast<size_t>(std::count_if(
      running_.begin(), running_.end(), [](const auto& entry) { return !entry.second.has_ended; }));
}

void BatchRunner::set_request(const LineId& line, std::shared_ptr<LiveRequest> request) {
  const std::lock_guard lock(mutex_);
  const auto found = running_.find(line);
  if (found != running_.end() && !found->second.has_ended) {
    found->second.request = std::move(request);
  }
}

void BatchRunner::finish_line(const LineId& line, LineResult result, DoneStatus done) {
  bool heard = false;
  {
    const std::lock_guard lock(mutex_);
    const auto found = running_.find(line);
    heard = !stopped_ && found != running_.end() && !std::exchange(found->second.has_ended, true);
  }
  if (!heard) return done(not_found("line {} does not run", line.line));
  wake();
  store_.batches().finish_line(
      epoch_, line, std::move(result), [this, line, done = std::move(done)](Status status) {
        const bool settled = status.ok() || status.code() == Code::kNotFound ||
                             status.code() == Code::kAlreadyExists;
        {
          const std::lock_guard lock(mutex_);
          if (!settled) {
            returned_[line] = 0;
            faulty_until_us_ = clock_.now() + kRetryAfterUs;
          }
          woken_ = true;
          running_.erase(line);  // after which the runner may go
          changed_.notify_all();
        }
        done(std::move(status));
      });
}

void BatchRunner::return_line(const LineId& line, TimeUs rest_us) {
  const std::lock_guard lock(mutex_);
  const auto found = running_.find(line);
  if (stopped_ || found == running_.end() || found->second.has_ended) return;
  running_.erase(found);
  returned_[line] = clock_.now() + rest_us;
  woken_ = true;
  changed_.notify_all();
}

void BatchRunner::forget_running() {
  const bool any = running() > 0;
  cancel_running([](const LineId&) { return true; });
  if (!any) return;
  const Status status = store_.batches().return_all_lines(epoch_);
  if (!status.ok()) log_warning("batches: {}", status.message());
}

void BatchRunner::stop() {
  {
    const std::lock_guard lock(mutex_);
    if (std::exchange(stopped_, true)) return;
  }
  store_.batches().watch({});
  validator_.stop();
  forget_running();
  std::unique_lock lock(mutex_);
  changed_.wait(lock, [this] { return running_.empty(); });  // results that are being stored
  if (returned_.empty()) return;
  lock.unlock();
  (void)store_.batches().return_all_lines(epoch_);
}

}  // namespace skein
