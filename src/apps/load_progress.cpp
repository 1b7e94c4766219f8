#include "apps/load_progress.h"

#include <algorithm>
#include <cstdio>
#include <fmt/format.h>
#include <unistd.h>
#include <utility>

namespace skein::apps {
namespace {

constexpr size_t kBarWidth = 24;

// Filled by the share of models that are there; where the next one is under way, a mark runs.
std::string bar(size_t done, size_t all, double elapsed_s) {
  std::string cells(kBarWidth, '.');
  const size_t filled = kBarWidth * done / all;
  std::fill_n(cells.begin(), filled, '#');
  const size_t open = kBarWidth * (done + 1) / all - filled;
  if (done < all && open > 0) cells[filled + static_cast<size_t>(elapsed_s * 8) % open] = '>';
  return cells;
}

}  // namespace

LoadProgress::LoadProgress(std::vector<std::string> models)
    : shown_(::isatty(STDERR_FILENO) == 1), models_(std::move(models)), loaded_(models_.size()) {}

void LoadProgress::done(size_t model) {
  loaded_[model] = true;
}

void LoadProgress::draw() {
  const auto next = std::find(loaded_.begin(), loaded_.end(), false);
  if (!shown_ || next == loaded_.end()) return;
  const std::chrono::duration<double> elapsed = std::chrono::steady_clock::now() - started_;
  const auto done = static_cast<size_t>(std::count(loaded_.begin(), loaded_.end(), true));
  std::fputs(fmt::format("\r\x1b[Kloading [{}] {}/{} {} {:.1f} s",
                         bar(done, models_.size(), elapsed.count()), done, models_.size(),
                         models_[static_cast<size_t>(next - loaded_.begin())], elapsed.count())
                 .c_str(),
             stderr);
  std::fflush(stderr);
  drawn_ = true;
}

void LoadProgress::clear() {
  if (!drawn_) return;
  std::fputs("\r\x1b[K", stderr);
  std::fflush(stderr);
  drawn_ = false;
}

}  // namespace skein::apps
