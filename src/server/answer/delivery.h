// How answers leave: Delivery is the thread on which token ids become text and frames, AnswerOutput
// what becomes of an answer's events there, and AnswerSink where they go.
#pragma once

#include <chrono>
#include <condition_variable>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <string_view>
#include <thread>

#include "server/api/answer_writer.h"
#include "server/api/errors.h"
#include "server/http/byte_budget.h"
#include "server/http/responder.h"

namespace skein {

class Deliverable {
 public:
  virtual ~Deliverable() = default;
  // Takes what there is. Calls do not overlap.
  virtual void advance() = 0;
  // advance() has thrown, for want of memory: this answer ends, and nobody else's.
  virtual void give_up() noexcept = 0;

 private:
  friend class Delivery;
  // Guarded by the Delivery's mutex. The list hangs together by itself, so that posting needs no
  // memory and cannot fail.
  bool listed_ = false;
  std::shared_ptr<Deliverable> next_;
};

// An engine says that a stream has news; the answer it belongs to is put on the list, once however
// often it is said, and its advance() is called on the delivery's thread. So an engine's thread
// never formats anything, and all tokens of a step are written in one go.
class Delivery {
 public:
  Delivery();
  ~Delivery();  // what is on the list is still delivered
  Delivery(const Delivery&) = delete;
  Delivery& operator=(const Delivery&) = delete;

  // Any thread.
  void post(std::shared_ptr<Deliverable> answer);
  // Posts it when that time has come, if it is still there then. Any thread.
  void remind(const std::shared_ptr<Deliverable>& answer, std::chrono::steady_clock::time_point at);

 private:
  void run();
  void list(std::shared_ptr<Deliverable> answer);  // with the mutex held
  void list_due();
  void wait_for_news(std::unique_lock<std::mutex>& lock);

  std::mutex mutex_;
  std::condition_variable posted_;
  std::shared_ptr<Deliverable> first_;
  Deliverable* last_ = nullptr;
  std::multimap<std::chrono::steady_clock::time_point, std::weak_ptr<Deliverable>> reminders_;
  bool stopping_ = false;
  std::thread thread_;
};

// Where an answer goes: to a client of HTTP, or into the results of a batch.
//
// An answer ends with exactly one send(), finish() or fail(). Where not even that can be said, the
// sink goes without an end: a client of HTTP then gets a 500, or sees that its stream is cut.
// Functions are called by one thread at a time, and none blocks.
class AnswerSink {
 public:
  virtual ~AnswerSink() = default;

  // A line of a batch: nobody waits for it, and it never asks for a stream.
  virtual bool is_background() const = 0;

  // Called once, when the answer is opened, on the thread that begins it. `hung_up` is called when
  // nobody wants it any more, by any thread.
  virtual void on_hangup(std::function<void()> hung_up) = 0;

  // A stream begins; `ready` as http::Responder::on_ready. Nothing leaves before the first write or
  // keepalive.
  virtual void start(http::StreamHead head, std::function<void()> ready) = 0;
  // A header of the answer; not of a stream whose head has left, nor of a line of a batch.
  virtual void add_header(const http::Header& /*header*/) {}
  virtual http::WriteResult write(std::string_view frames) = 0;
  virtual void finish() = 0;

  // The whole answer.
  virtual void send(const std::string& id, std::string body) = 0;
  // The end, badly. Where a stream has begun, `frame` is its last, and the result is true.
  virtual bool fail(const std::string& id, const api::Error& error, std::string_view frame) = 0;
};

// The writer of the client's dialect turns events into bytes, and the sink takes them: frames as
// they come, or the whole body at the end. What the sink has not taken yet is held here, on the
// key's account of the byte budget, and never beyond it: has_memory() turns false instead, and the
// answer must fail with memory_error(). For one thread at a time.
class AnswerOutput {
 public:
  // `stream`: frames as they come; else the whole answer at the end.
  AnswerOutput(std::unique_ptr<AnswerSink> sink, const api::AnswerKind& kind, bool stream,
               ByteBudget& budget, std::string_view account)
      : sink_(std::move(sink)),
        kind_(kind),
        stream_(stream),
        budget_(budget),
        memory_(budget, account) {}

  // Called before the model is there, so that keepalives go out while it loads; from then on an
  // error has to be a frame. `ready`: try flush() again.
  void open(std::chrono::milliseconds keepalive_interval, std::function<void()> hung_up,
            std::function<void()> ready);
  void add_header(const http::Header& header) { sink_->add_header(header); }
  // When it is there, and before any event.
  void set_writer(std::unique_ptr<api::AnswerWriter> writer) { writer_ = std::move(writer); }

  void progress(uint64_t computed_tokens, uint64_t prompt_tokens);
  // A piece of a thought, of the content or of a call.
  template <class Part>
  void write(uint32_t choice, const Part& part, const api::Figures& now) {
    if constexpr (std::is_same_v<Part, AnswerHidden>) {
      writer_->pass(out_, choice, part, now);
    } else {
      writer_->write(out_, choice, part, now);
    }
    account();
  }
  void finish(uint32_t choice, const AnswerEnd& end, const api::Figures& now);
  // After the last choice: what is kept of the answer, and whether it was.
  api::KeptAnswer kept(const api::Figures& all) { return writer_->kept(all); }
  void set_kept(bool was_kept) { writer_->set_kept(was_kept); }
  // After that. Only the first call counts.
  void end(const api::Figures& all);

  // Hands over the frames that were written, in the middle of an answer only when they are many;
  // what the sink does not take stays. False: its reader is behind, or there is no memory to wait
  // for it.
  bool flush();
  bool flush_many();
  bool is_stalled() const { return is_stalled_; }
  bool has_memory() const { return has_memory_; }
  api::Error memory_error() const;

  // Everything was handed over: the answer is complete.
  void complete(const std::string& id);
  // The answer ends with an error; true: as a frame of a stream.
  bool fail(const std::string& id, const api::Error& error);
  // Not even an error can be said: the sink goes without an end.
  void abandon() { sink_.reset(); }
  // After the end: what was held goes.
  void release();

 private:
  // What is held is on the key's account.
  void account();

  std::unique_ptr<AnswerSink> sink_;
  const api::AnswerKind kind_;
  const bool stream_;
  ByteBudget& budget_;
  // Holds the size of what the writer keeps, and of what a stream holds back while its reader is
  // behind.
  ByteBudget::Hold memory_;
  std::unique_ptr<api::AnswerWriter> writer_;
  std::string out_;  // written, not yet taken by the sink
  bool is_stalled_ = false;
  bool has_memory_ = true;
  bool has_ended_ = false;
};

}  // namespace skein
