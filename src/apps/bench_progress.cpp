#include "apps/bench_progress.h"

#include <algorithm>
#include <cstdio>
#include <fmt/format.h>
#include <unistd.h>

namespace skein::apps {
namespace {

constexpr std::chrono::milliseconds kBenchRedraw{100};
constexpr uint64_t kBarWidth = 30;

}  // namespace

BenchProgress::BenchProgress() : shown_(::isatty(STDERR_FILENO) == 1) {}

void BenchProgress::begins(const char* mode, uint32_t concurrency, uint64_t tokens) {
  what_ = concurrency == 0 ? std::string(mode) : fmt::format("{}, {} at once", mode, concurrency);
  total_ = std::max<uint64_t>(tokens, 1);
  began_ = last_drawn_ = std::chrono::steady_clock::now();
  draw(0, began_);
}

void BenchProgress::got_tokens(uint64_t tokens_so_far) {
  const Time now = std::chrono::steady_clock::now();
  if (now - last_drawn_ >= kBenchRedraw) draw(tokens_so_far, now);
}

void BenchProgress::ended(const bench::BenchmarkResult&) {
  clear();
}

void BenchProgress::draw(uint64_t tokens, Time now) {
  if (!shown_) return;
  last_drawn_ = now;
  drawn_ = true;
  const uint64_t filled = std::min(kBarWidth, tokens * kBarWidth / total_);
  const double seconds = std::chrono::duration<double>(now - began_).count();
  fmt::print(stderr, "\r\x1b[K{:<20} [{:=<{}}{:<{}}] {:3} %  {:.0f} tokens/s", what_, "", filled,
             "", kBarWidth - filled, std::min<uint64_t>(100, tokens * 100 / total_),
             seconds > 0 ? static_cast<double>(tokens) / seconds : 0.0);
  std::fflush(stderr);
}

void BenchProgress::clear() {
  if (!drawn_) return;
  fmt::print(stderr, "\r\x1b[K");
  std::fflush(stderr);
  drawn_ = false;
}

}  // namespace skein::apps
