// BatchRunner: which lines run, and what becomes of them.
#include <utility>

#include "base/log.h"
#include "server/batch/batch_runner.h"

namespace skein {
namespace {

constexpr int64_t kMaxSuspects = 4096;  // more than ever run at a time
constexpr const char* kUnreadableLine =
    R"({"error": {"message": "The line can no longer be read.", "type": "api_error", )"
    R"("param": null, "code": "input_unreadable"}})";

}  // namespace

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
    if (!in_progress_.empty()) look_again_at(clock_.now() + kBatchRetryAfterUs);
    return;
  }
  ask_models();
  // Suspects run alone: they wait for what runs, and nothing else begins before them.
  const auto suspect = hand_out_suspect(idle, lines);
  const Status claimed = suspect.ok() && !*suspect ? fill(n, lines) : suspect.status();
  if (claimed.ok() || has_lost_epoch(claimed)) return;
  log_warning("batches: no line begins for now: {}", claimed.message());
  not_before_us_ = clock_.now() + kBatchRetryAfterUs;
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
    running_[place.id] = {epoch_, nullptr, false};
  }
  const BatchRecord& record = batch.batch.record;
  auto text = batch.input->read(place.offset, place.bytes);
  if (text.ok() && text->size() == place.bytes) {
    lines.push_back({place.id, record.id, record.owner, record.endpoint, std::move(*text)});
    return;
  }
  log_error("batch {}, line {}: its text cannot be read: {}", record.id, place.id.line,
            text.ok() ? "the input is cut off" : text.message());
  finish_line(place.id, {500, "", kUnreadableLine}, [](const Status&) {});
}

// What cancelled lines still say is not heard.
void BatchRunner::cancel_running(const std::function<bool(const LineId&)>& which) {
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
  int64_t epoch = 0;
  {
    const std::lock_guard lock(mutex_);
    const auto found = running_.find(line);
    heard = !stopped_ && found != running_.end() && !std::exchange(found->second.has_ended, true);
    if (heard) epoch = found->second.epoch;
  }
  if (!heard) return done(not_found("line {} does not run", line.line));
  wake();
  store_.batches().finish_line(
      epoch, line, std::move(result), [this, line, done = std::move(done)](Status status) {
        const bool settled = status.ok() || status.code() == Code::kNotFound ||
                             status.code() == Code::kAlreadyExists;
        if (settled && !status.ok() && store_.is_shared()) {
          log_info("batches: a result came too late and is dropped: {}", status.message());
        }
        {
          const std::lock_guard lock(mutex_);
          if (!settled) {
            returned_[line] = 0;
            faulty_until_us_ = clock_.now() + kBatchRetryAfterUs;
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
