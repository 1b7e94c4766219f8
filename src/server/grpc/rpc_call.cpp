#include "server/grpc/rpc_call.h"

#include <utility>

#include "server/grpc/piece_writer.h"

namespace skein::rpc {

void RpcCall::attach(Wire* wire) {
  const std::lock_guard lock(mutex_);
  wire_ = wire;
  go_on();
}

void RpcCall::push(std::string_view pieces) {
  while (!pieces.empty()) {
    queue_.emplace_back(take_piece(pieces));
    queued_bytes_ += queue_.back().size();
  }
}

// gRPC calls back on other threads, or later, and so may be called with the lock held; without it a
// write could come after the end.
void RpcCall::go_on() {
  if (wire_ == nullptr || is_writing_) return;
  if (!queue_.empty()) {
    const grpc::Slice slice(queue_.front());
    writing_ = grpc::ByteBuffer(&slice, 1);
    queued_bytes_ -= queue_.front().size();
    queue_.pop_front();
    is_writing_ = true;
    return wire_->write(writing_);
  }
  if (end_) std::exchange(wire_, nullptr)->finish(end_->status, end_->whole);
}

void RpcCall::on_written(bool ok) {
  std::function<void()> ready;
  {
    const std::lock_guard lock(mutex_);
    is_writing_ = false;
    if (!ok) {
      queue_.clear();
      queued_bytes_ = 0;
    }
    go_on();
    if (is_full_ && queued_bytes_ < kOutboxBytes / 2) {
      is_full_ = false;
      ready = ready_;
    }
  }
  if (ready) ready();
}

void RpcCall::on_cancelled() {
  std::function<void()> hung_up;
  std::function<void()> ready;
  {
    const std::lock_guard lock(mutex_);
    is_gone_ = is_unwanted_ = true;
    queue_.clear();
    queued_bytes_ = 0;
    if (!end_) end_ = End{grpc::Status::CANCELLED, {}};
    go_on();
    hung_up = std::exchange(hung_up_, {});
    if (std::exchange(is_full_, false)) ready = ready_;
  }
  if (hung_up) hung_up();
  if (ready) ready();
}

void RpcCall::abort() {
  std::function<void()> hung_up;
  {
    const std::lock_guard lock(mutex_);
    is_unwanted_ = true;
    hung_up = std::exchange(hung_up_, {});
  }
  if (hung_up) hung_up();
}

void RpcCall::on_hangup(std::function<void()> hung_up) {
  {
    const std::lock_guard lock(mutex_);
    if (!is_unwanted_) {
      hung_up_ = std::move(hung_up);
      return;
    }
  }
  hung_up();
}

void RpcCall::on_ready(std::function<void()> ready) {
  const std::lock_guard lock(mutex_);
  ready_ = std::move(ready);
}

http::WriteResult RpcCall::write(std::string_view pieces) {
  const std::lock_guard lock(mutex_);
  if (is_gone_ || end_) return http::WriteResult::kGone;
  if (queued_bytes_ >= kOutboxBytes) {
    is_full_ = true;
    return http::WriteResult::kFull;
  }
  push(pieces);
  go_on();
  return http::WriteResult::kTaken;
}

void RpcCall::end(grpc::Status status, std::string_view pieces, std::string whole) {
  std::function<void()> unused[2];  // what callbacks hold goes outside the lock
  const std::lock_guard lock(mutex_);
  if (end_) return;
  if (!is_gone_) push(pieces);
  end_ = End{std::move(status), std::move(whole)};
  unused[0] = std::exchange(hung_up_, {});
  unused[1] = std::exchange(ready_, {});
  go_on();
}

RpcSink::~RpcSink() {
  call_->end({grpc::StatusCode::INTERNAL, "The answer was given up."});
}

// A stream of gRPC ends with a status, whatever was said before: only who called it off is told in
// a last piece how far it had come.
bool RpcSink::fail(const std::string&, const api::Error& error, std::string_view pieces) {
  if (pieces.empty()) {
    call_->end(status_of(error));
    return false;
  }
  call_->end(grpc::Status::OK, pieces);
  return true;
}

grpc::Status status_of(const api::Error& error) {
  const auto code = [&error] {
    switch (error.status) {
      case 401:
      case 403:
        return grpc::StatusCode::PERMISSION_DENIED;
      case 404:
        return grpc::StatusCode::NOT_FOUND;
      case 408:
        return grpc::StatusCode::DEADLINE_EXCEEDED;
      case 429:
        return grpc::StatusCode::RESOURCE_EXHAUSTED;
      case 499:
        return grpc::StatusCode::CANCELLED;
      case 501:
        return grpc::StatusCode::INVALID_ARGUMENT;  // its field is what cannot be had
      case 503:
        return grpc::StatusCode::UNAVAILABLE;
      default:
        return error.status >= 500 ? grpc::StatusCode::INTERNAL
                                   : grpc::StatusCode::INVALID_ARGUMENT;
    }
  }();
  std::string message = error.message;
  if (!error.param.empty()) message = error.param + ": " + message;
  return {code, message};
}

}  // namespace skein::rpc
