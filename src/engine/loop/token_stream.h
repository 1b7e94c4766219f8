// TokenStream: what the engine's thread tells one reader, in order, exactly once.
//
// Bounded: it holds at most `max_bytes` of tokens that nobody has read. The engine never waits for
// a reader: push() says when one is too far behind, and the engine then ends that request alone.
// Invariants: (1) nothing follows the end; (2) the first end counts, later ones are ignored, so a
// watchdog and a late step may both try; (3) `on_ready` is called, without a lock held, once for
// each time something arrives in a stream whose reader has taken all there was.
// Thread-safe: one thread pushes, another reads, any may end.
#pragma once

#include <condition_variable>
#include <cstdint>
#include <functional>
#include <mutex>
#include <optional>
#include <span>
#include <vector>

#include "base/time.h"
#include "engine/loop/generation.h"

namespace skein {

// Everything that arrived since the last take(). Reused from take to take.
struct StreamChunk {
  std::vector<TokenId> tokens;
  // With SamplingParams::logprobs, per token: the token itself, then the likeliest ones, as many as
  // were asked for.
  std::vector<TokenLogprob> logprobs;
  uint32_t computed_tokens = 0;  // of the prompt, so far
  uint32_t cached_tokens = 0;    // of the prompt, found computed; known with the first token
  std::optional<GenerationEnd> end;
};

class TokenStream {
 public:
  static constexpr size_t kMaxBytes = size_t{64} << 10;

  explicit TokenStream(std::function<void()> on_ready = {}, size_t max_bytes = kMaxBytes)
      : on_ready_(std::move(on_ready)), max_bytes_(max_bytes) {}

  // The engine's side. False when the reader is `max_bytes` behind, or has taken nothing since
  // before `stalled_before`: the token is dropped then. The reader may not hear of it before
  // tell().
  [[nodiscard]] bool add(TokenId token, std::span<const TokenLogprob> logprobs, TimeUs now,
                         TimeUs stalled_before);
  // Of all that was added: who has many streams adds to all of them first, so that their readers
  // wake up once. False: there is no memory to say so.
  [[nodiscard]] bool tell();
  [[nodiscard]] bool push(TokenId token, std::span<const TokenLogprob> logprobs, TimeUs now,
                          TimeUs stalled_before) {
    return add(token, logprobs, now, stalled_before) && tell();
  }
  void progress(uint32_t computed_tokens);
  void set_cached(uint32_t cached_tokens);  // before the first token
  void end(GenerationEnd end);
  bool ended() const;

  // The reader's side. False when there is nothing; what was in `chunk` goes.
  bool take(StreamChunk& chunk);
  // Sleeps until there is something or the time is over.
  bool wait(StreamChunk& chunk, TimeUs timeout_us = kNever);

 private:
  void announce(std::unique_lock<std::mutex>& lock);
  bool take_locked(StreamChunk& chunk);

  const std::function<void()> on_ready_;
  const size_t max_bytes_;
  mutable std::mutex mutex_;
  std::condition_variable arrived_;
  StreamChunk pending_;
  bool news_ = false;    // something that was not taken yet
  bool untold_ = false;  // tokens were added that no tell() has followed, and nobody has taken
  bool ended_ = false;
  TimeUs unread_since_ = 0;  // when the oldest token in pending_ came
};

}  // namespace skein
