#include "apps/load_progress.h"

#include <algorithm>
#include <cstdio>
#include <fmt/format.h>
#include <unistd.h>
#include <utility>

namespace skein::apps {
namespace {

constexpr double kBarWidth = 24;
constexpr std::chrono::seconds kSoon{1};
constexpr std::chrono::milliseconds kLoadRedraw{80};

std::string bar(double share) {
  const auto filled = static_cast<size_t>(kBarWidth * share);
  return fmt::format("{:#<{}}{:.<{}}", "", filled, "", static_cast<size_t>(kBarWidth) - filled);
}

}  // namespace

LoadProgress::LoadProgress(std::vector<std::string> models, const LoadShare& share)
    : shown_(::isatty(STDERR_FILENO) == 1),
      models_(std::move(models)),
      share_(share),
      loaded_(models_.size()) {}

void LoadProgress::done(size_t model) {
  loaded_[model] = true;
}

// The cursor goes back to the start, so that a line of the log takes its place.
void LoadProgress::draw() {
  const auto next = std::find(loaded_.begin(), loaded_.end(), false);
  const Time now = std::chrono::steady_clock::now();
  if (!shown_ || next == loaded_.end() || now - started_ < kSoon) return;
  if (drawn_ && now - last_drawn_ < kLoadRedraw) return;
  last_drawn_ = now;
  const auto done = static_cast<double>(std::count(loaded_.begin(), loaded_.end(), true));
  const double share =
      (done + std::min(share_.share(), 1.0F)) / static_cast<double>(loaded_.size());
  const std::string& name = models_[static_cast<size_t>(next - loaded_.begin())];
  const std::chrono::duration<double> elapsed = now - started_;
  fmt::print(stderr, "\x1b[Kloading [{}] {:3.0f} % {} {:.1f} s\r", bar(share), 100 * share, name,
             elapsed.count());
  std::fflush(stderr);
  drawn_ = true;
}

void LoadProgress::clear() {
  if (!drawn_) return;
  std::fputs("\x1b[K", stderr);
  std::fflush(stderr);
  drawn_ = false;
}

}  // namespace skein::apps
