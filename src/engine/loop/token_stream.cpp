#include "engine/loop/token_stream.h"

#include <chrono>
#include <exception>
#include <utility>

namespace skein {

// No memory, here or for whoever is told: the request ends alone, like that of a reader who is too
// far behind.
bool TokenStream::add(TokenId token, std::span<const TokenLogprob> logprobs, TimeUs now,
                      TimeUs stalled_before) {
  const std::lock_guard lock(mutex_);
  if (ended_) return true;
  const size_t bytes = (pending_.tokens.size() + 1) * sizeof(TokenId) +
                       (pending_.logprobs.size() + logprobs.size()) * sizeof(TokenLogprob);
  if (pending_.tokens.empty()) {
    unread_since_ = now;
  } else if (bytes > max_bytes_ || unread_since_ < stalled_before) {
    return false;
  }
  try {
    pending_.tokens.push_back(token);
    pending_.logprobs.insert(pending_.logprobs.end(), logprobs.begin(), logprobs.end());
    untold_ = true;
    return true;
  } catch (const std::exception&) {
    news_ = false;  // so that the end, which comes now, is announced
    return false;
  }
}

bool TokenStream::tell() {
  std::unique_lock lock(mutex_);
  if (!std::exchange(untold_, false)) return true;
  try {
    announce(lock);
    return true;
  } catch (const std::exception&) {
    lock.lock();
    if (!ended_) news_ = false;  // so that the end, which comes now, is announced
    return false;
  }
}

void TokenStream::progress(uint32_t computed_tokens) {
  std::unique_lock lock(mutex_);
  if (ended_ || pending_.computed_tokens == computed_tokens) return;
  pending_.computed_tokens = computed_tokens;
  try {
    announce(lock);
  } catch (const std::exception&) {
    lock.lock();
    if (!ended_) news_ = false;  // what comes next is announced
  }
}

void TokenStream::set_cached(uint32_t cached_tokens) {
  const std::lock_guard lock(mutex_);
  pending_.cached_tokens = cached_tokens;
}

void TokenStream::end(GenerationEnd end) {
  std::unique_lock lock(mutex_);
  if (std::exchange(ended_, true)) return;
  pending_.end = std::move(end);
  // Nothing comes after the end that could wake the reader, so one try is not enough.
  for (int attempt = 0; attempt < 3; ++attempt) {
    try {
      return announce(lock);
    } catch (const std::exception&) {
      lock.lock();
      news_ = false;
    }
  }
  news_ = true;  // for whoever looks
}

bool TokenStream::ended() const {
  const std::lock_guard lock(mutex_);
  return ended_;
}

void TokenStream::announce(std::unique_lock<std::mutex>& lock) {
  const bool first = !std::exchange(news_, true);
  lock.unlock();
  if (!first) return;
  arrived_.notify_one();
  if (on_ready_) on_ready_();
}

bool TokenStream::take(StreamChunk& chunk) {
  const std::lock_guard lock(mutex_);
  return take_locked(chunk);
}

bool TokenStream::wait(StreamChunk& chunk, TimeUs timeout_us) {
  std::unique_lock lock(mutex_);
  const auto ready = [this] { return news_; };
  if (timeout_us == kNever) {
    arrived_.wait(lock, ready);
  } else {
    arrived_.wait_for(lock, std::chrono::microseconds(timeout_us), ready);
  }
  return take_locked(chunk);
}

bool TokenStream::take_locked(StreamChunk& chunk) {
  chunk.tokens.clear();
  chunk.logprobs.clear();
  chunk.end.reset();
  if (!std::exchange(news_, false)) return false;
  untold_ = false;
  chunk.computed_tokens = pending_.computed_tokens;
  chunk.cached_tokens = pending_.cached_tokens;
  std::swap(chunk.tokens, pending_.tokens);
  std::swap(chunk.logprobs, pending_.logprobs);
  std::swap(chunk.end, pending_.end);
  return true;
}

}  // namespace skein
