#include "server/http/exchange.h"

#include <exception>
#include <utility>

#include "base/patience.h"

namespace skein::http {

void Wakeups::push(std::shared_ptr<Exchange> exchange) {
  const std::lock_guard lock(mutex_);
  if (closed_) return;
  pushed_.push_back(std::move(exchange));
  if (pushed_.size() == 1) wake_();
}

void Wakeups::close() {
  const std::lock_guard lock(mutex_);
  closed_ = true;
  pushed_.clear();
}

std::vector<std::shared_ptr<Exchange>>& Wakeups::drain() {
  drained_.clear();
  const std::lock_guard lock(mutex_);
  pushed_.swap(drained_);
  return drained_;
}

void Exchange::notify(std::unique_lock<std::mutex>& lock) {
  const bool first = !std::exchange(notified_, true);
  lock.unlock();
  const PatientScope patient;  // nobody would come for it again
  if (first) wakeups_->push(shared_from_this());
}

bool Exchange::send(Response response) {
  std::unique_lock lock(mutex_);
  if (stage_ > Stage::kStarted) return false;
  // What may throw comes first: an exchange that has ended must have its answer.
  if (response.body.size() > outbox_limit_ && !memory_.resize(response.body.size())) {
    response = {.status = 503, .headers = {{"Retry-After", "1"}}};  // the connection words it
  }
  stage_ = Stage::kEnded;
  has_stream_ = false;
  response_ = std::move(response);
  notify(lock);
  return true;
}

bool Exchange::start(StreamHead head) {
  std::unique_lock lock(mutex_);
  if (stage_ > Stage::kStarted) return false;
  stage_ = Stage::kStarted;
  has_stream_ = true;
  keepalive_ = head.keepalive;
  keepalive_interval_ = head.keepalive_interval;
  head_ = std::move(head);
  if (!keepalive_.empty()) notify(lock);  // the connection has to watch the time from now on
  return true;
}

WriteResult Exchange::write(std::string_view bytes) {
  std::unique_lock lock(mutex_);
  if (stage_ != Stage::kStarted && stage_ != Stage::kStreaming) return WriteResult::kGone;
  if (outbox_.size() >= outbox_limit_) {
    full_ = true;
    return WriteResult::kFull;
  }
  stage_ = Stage::kStreaming;
  outbox_.append(bytes);
  notify(lock);
  return WriteResult::kTaken;
}

bool Exchange::finish_with(std::string_view bytes) {
  std::unique_lock lock(mutex_);
  if (stage_ != Stage::kStarted && stage_ != Stage::kStreaming) return false;
  outbox_.append(bytes);
  stage_ = Stage::kEnded;
  notify(lock);
  return true;
}

void Exchange::end(bool whole) {
  std::unique_lock lock(mutex_);
  if (stage_ != Stage::kStarted && stage_ != Stage::kStreaming) return;
  stage_ = Stage::kEnded;
  whole_ = whole;
  notify(lock);
}

void Exchange::abandon() {
  Response response;
  response.status = 500;
  if (!send(std::move(response))) end(false);
}

void Exchange::on_hangup(std::function<void()> callback) {
  {
    const std::lock_guard lock(mutex_);
    if (!hung_up_) {
      if (stage_ < Stage::kEnded) on_hangup_ = std::move(callback);
      return;
    }
  }
  callback();
}

void Exchange::on_ready(std::function<void()> callback) {
  const std::lock_guard lock(mutex_);
  on_ready_ = std::move(callback);
}

bool Exchange::hung_up() const {
  const std::lock_guard lock(mutex_);
  return hung_up_;
}

void Exchange::take(Output& output, bool keepalive) {
  std::function<void()> ready;
  std::function<void()> unused[2];  // what callbacks hold goes outside the lock
  {
    const std::lock_guard lock(mutex_);
    notified_ = false;
    output.response = std::exchange(response_, std::nullopt);
    output.bytes.clear();
    output.ended = has_stream_ && stage_ == Stage::kEnded;
    output.whole = whole_;
    if (has_stream_ && head_ && (keepalive || !outbox_.empty() || output.ended)) {
      output.head = std::exchange(head_, std::nullopt);
      if (stage_ == Stage::kStarted) stage_ = Stage::kStreaming;
    }
    if (has_stream_) output.bytes.swap(outbox_);
    if (std::exchange(full_, false) && on_ready_ && stage_ != Stage::kEnded) ready = on_ready_;
    if (stage_ == Stage::kEnded) {
      unused[0].swap(on_hangup_);
      unused[1].swap(on_ready_);
    }
  }
  if (ready) ready();
}

std::optional<std::pair<std::string, std::chrono::milliseconds>> Exchange::keepalive() const {
  const std::lock_guard lock(mutex_);
  if (!has_stream_ || keepalive_.empty()) return std::nullopt;
  return std::pair{keepalive_, keepalive_interval_};
}

void Exchange::hang_up() {
  std::function<void()> callback;
  {
    const std::lock_guard lock(mutex_);
    if (stage_ >= Stage::kEnded || std::exchange(hung_up_, true)) return;
    callback.swap(on_hangup_);
  }
  if (callback) callback();
}

void Exchange::detach() {
  std::function<void()> hangup, ready;
  bool was_open = false;
  bool was_refused = false;
  {
    const std::lock_guard lock(mutex_);
    was_open = stage_ < Stage::kEnded;
    was_refused = std::exchange(full_, false);
    if (was_open) hung_up_ = true;
    stage_ = Stage::kDetached;
    memory_.resize(0);
    hangup.swap(on_hangup_);
    ready.swap(on_ready_);
    outbox_ = {};
  }
  if (was_open && hangup) hangup();
  // Whoever waits for room has to look again, and finds that nobody reads any more. One that was
  // not refused may be writing at this moment, and is not called beside that.
  if (was_open && was_refused && ready) ready();
}

struct Responder::Ticket {
  explicit Ticket(std::shared_ptr<Exchange> e) : exchange(std::move(e)) {}
  Ticket(const Ticket&) = delete;
  Ticket& operator=(const Ticket&) = delete;
  ~Ticket() {
    const PatientScope patient;
    try {
      exchange->abandon();
    } catch (const std::exception&) {  // no memory to say so: the client waits for its own deadline
    }
  }
  const std::shared_ptr<Exchange> exchange;
};

Responder::Responder(std::shared_ptr<Exchange> exchange)
    : ticket_(std::make_shared<Ticket>(std::move(exchange))) {}

bool Responder::send(Response response) const {
  return ticket_->exchange->send(std::move(response));
}

bool Responder::start(StreamHead head) const {
  return ticket_->exchange->start(std::move(head));
}

WriteResult Responder::write(std::string_view bytes) const {
  return ticket_->exchange->write(bytes);
}

void Responder::finish() const {
  ticket_->exchange->end(true);
}

bool Responder::finish_with(std::string_view bytes) const {
  return ticket_->exchange->finish_with(bytes);
}

void Responder::abort() const {
  ticket_->exchange->end(false);
}

void Responder::on_hangup(std::function<void()> callback) const {
  ticket_->exchange->on_hangup(std::move(callback));
}

void Responder::on_ready(std::function<void()> callback) const {
  ticket_->exchange->on_ready(std::move(callback));
}

bool Responder::hung_up() const {
  return ticket_->exchange->hung_up();
}

}  // namespace skein::http
