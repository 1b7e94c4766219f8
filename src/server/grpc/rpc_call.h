// RpcCall: one call of Generate or GenerateStream, between gRPC, whose threads say when something
// was written or the caller has gone, and the answer, which writes and ends on threads of its own.
//
// A call ends exactly once: the first end() counts, and what is queued before it still goes out. At
// most kOutboxBytes and one write are held for a caller that does not read. Any thread may call any
// member; none blocks. Callbacks run on gRPC's threads, or within on_hangup() when it is too late
// already.
#pragma once

#include <cstddef>
#include <deque>
#include <functional>
#include <grpcpp/grpcpp.h>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <string_view>

#include "server/answer/delivery.h"
#include "server/http/responder.h"

namespace skein::rpc {

// What gRPC gives for a call. It is there until the call was finished.
class Wire {
 public:
  virtual ~Wire() = default;
  // One at a time; RpcCall::on_written() follows.
  virtual void write(const grpc::ByteBuffer& message) = 0;
  // `whole`: the message of a call that has one; else empty.
  virtual void finish(const grpc::Status& status, std::string_view whole) = 0;
};

class RpcCall {
 public:
  static constexpr size_t kOutboxBytes = 256 << 10;

  // `place`: goes when this does.
  explicit RpcCall(std::shared_ptr<void> place) : place_(std::move(place)) {}

  // ---- gRPC's side ----
  void attach(Wire* wire);
  void on_written(bool ok);
  void on_cancelled();
  // Somebody asked for its end by its id; the answer is told as if its caller had gone, and may
  // still say so.
  void abort();

  // ---- the answer's side ----
  void on_hangup(std::function<void()> hung_up);
  void on_ready(std::function<void()> ready);
  // `pieces` as append_piece() writes them; all or nothing.
  http::WriteResult write(std::string_view pieces);
  // With last pieces of a stream, which the outbox does not hold back, or with the whole answer.
  void end(grpc::Status status, std::string_view pieces = {}, std::string whole = {});

 private:
  struct End {
    grpc::Status status;
    std::string whole;
  };
  void push(std::string_view pieces);  // mutex_
  void go_on();                        // mutex_

  const std::shared_ptr<void> place_;
  std::mutex mutex_;
  Wire* wire_ = nullptr;  // null: not there yet, or finished
  std::deque<std::string> queue_;
  size_t queued_bytes_ = 0;
  grpc::ByteBuffer writing_;  // what is being written
  bool is_writing_ = false;
  bool is_full_ = false;  // somebody waits for room
  bool is_gone_ = false;  // nobody reads
  bool is_unwanted_ = false;
  std::optional<End> end_;
  std::function<void()> hung_up_;
  std::function<void()> ready_;
};

// An answer's way to a call.
class RpcSink final : public AnswerSink {
 public:
  explicit RpcSink(std::shared_ptr<RpcCall> call) : call_(std::move(call)) {}
  ~RpcSink() override;

  bool is_background() const override { return false; }
  void on_hangup(std::function<void()> hung_up) override { call_->on_hangup(std::move(hung_up)); }
  void start(http::StreamHead, std::function<void()> ready) override {
    call_->on_ready(std::move(ready));
  }
  http::WriteResult write(std::string_view pieces) override { return call_->write(pieces); }
  void finish() override { call_->end(grpc::Status::OK); }
  void send(const std::string&, std::string body) override {
    call_->end(grpc::Status::OK, {}, std::move(body));
  }
  bool fail(const std::string&, const api::Error& error, std::string_view pieces) override;

 private:
  const std::shared_ptr<RpcCall> call_;
};

// An error in gRPC's words. Dynamo takes UNAVAILABLE to another node, and INVALID_ARGUMENT to the
// client.
grpc::Status status_of(const api::Error& error);

}  // namespace skein::rpc
