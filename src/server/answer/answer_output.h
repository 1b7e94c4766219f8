// AnswerOutput: what becomes of an answer's events on their way to its sink.
//
// The writer of the client's dialect turns events into bytes, and the sink takes them: frames as
// they come, or the whole body at the end. What the sink has not taken yet is held here, on the
// key's account of the byte budget, and never beyond it: has_memory() turns false instead, and the
// answer must fail with memory_error(). For one thread at a time.
#pragma once

#include <chrono>
#include <functional>
#include <memory>
#include <string>
#include <string_view>

#include "server/answer/answer_sink.h"
#include "server/api/answer_writer.h"
#include "server/http/byte_budget.h"

namespace skein {

class AnswerOutput {
 public:
  // `stream`: frames as they come; else the whole answer at the end.
  AnswerOutput(std::unique_ptr<AnswerSink> sink, api::AnswerForm form, bool stream,
               ByteBudget& budget, std::string_view account)
      : sink_(std::move(sink)),
        form_(form),
        stream_(stream),
        budget_(budget),
        memory_(budget, account) {}

  // Before the model is there, so that keepalives go out while it loads; from then on an error has
  // to be a frame. `ready`: try flush() again.
  void open(std::chrono::milliseconds keepalive_interval, std::function<void()> hung_up,
            std::function<void()> ready);
  // When it is there, and before any event.
  void set_writer(std::unique_ptr<api::AnswerWriter> writer) { writer_ = std::move(writer); }

  void progress(uint64_t computed_tokens, uint64_t prompt_tokens);
  void content(uint32_t choice, const AnswerContent& content, const api::Figures& now);
  void finish(uint32_t choice, const AnswerEnd& end, const api::Figures& now);
  // After the last choice. Only the first call counts.
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
  std::unique_ptr<AnswerSink> sink_;
  const api::AnswerForm form_;
  const bool stream_;
  ByteBudget& budget_;
  // What a whole answer has grown to, or what a stream holds back while its reader is behind.
  ByteBudget::Hold memory_;
  std::unique_ptr<api::AnswerWriter> writer_;
  std::string out_;  // written, not yet taken by the sink
  bool is_stalled_ = false;
  bool has_memory_ = true;
  bool has_ended_ = false;
};

}  // namespace skein
