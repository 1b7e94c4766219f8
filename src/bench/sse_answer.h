// The answer of an HTTP/1.1 server to one streamed request, read as it comes: head, framing, the
// events of the stream. Pure; the server's bytes are not trusted.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <string_view>

#include "base/status.h"

namespace skein::bench {

class AnswerReader {
 public:
  // Gets the data of every event, without "data:".
  using OnEvent = std::function<void(std::string_view data)>;
  explicit AnswerReader(OnEvent on_event) : on_event_(std::move(on_event)) {}

  // kDataLoss when it is no HTTP, or a line is beyond all measure.
  Status feed(std::string_view bytes);
  // The server has closed: kDataLoss when more had been promised.
  Status closed();

  bool complete() const { return stage_ == Stage::kDone; }
  int status() const { return status_; }  // 0: the head has not come yet
  // The beginning of an answer that is not a stream of events.
  const std::string& body() const { return body_; }

 private:
  enum class Stage : uint8_t { kHead, kLength, kChunkSize, kChunk, kChunkEnd, kToClose, kDone };

  Status read_head(std::string_view head);
  Status read_chunk_size();
  void take_body(std::string_view bytes);

  const OnEvent on_event_;
  Stage stage_ = Stage::kHead;
  int status_ = 0;
  bool is_stream_ = false;
  uint64_t left_ = 0;    // of the body, or of a chunk
  std::string pending_;  // of the head, of a chunk's size
  std::string line_;     // of the stream
  std::string body_;
};

// The events of a completion added up, in OpenAI's shape; chat or not.
struct StreamTotals {
  uint32_t events_with_text = 0;
  uint32_t prompt_tokens = 0, generated_tokens = 0, cached_tokens = 0;  // by the server's usage
  bool done = false;                                                    // "[DONE]" came
  Status error;
};
// Takes one event; true when it brought text.
bool read_event(std::string_view data, StreamTotals& totals);

}  // namespace skein::bench
