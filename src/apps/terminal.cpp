#include "apps/terminal.h"

#include <algorithm>
#include <cerrno>
#include <clocale>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <fmt/format.h>
#include <histedit.h>
#include <langinfo.h>
#include <unistd.h>
#include <utility>

namespace skein::apps {
namespace {

// A signal handler can reach nothing but what is static.
std::atomic<bool> is_pressed{false};
static_assert(std::atomic<bool>::is_always_lock_free);

void press(int) {
  is_pressed.store(true, std::memory_order_relaxed);
}

void strip_end(std::string& line) {
  while (!line.empty() && (line.back() == '\n' || line.back() == '\r')) line.pop_back();
}

class PlainReader final : public LineReader {
 public:
  ~PlainReader() override { std::free(buffer_); }

  Event read(std::string& line) override {
    errno = 0;
    const ssize_t size = ::getline(&buffer_, &capacity_, stdin);
    if (size < 0) return errno == EINTR ? Event::kInterrupt : Event::kEnd;
    line.assign(buffer_, static_cast<size_t>(size));
    strip_end(line);
    return Event::kLine;
  }
  bool edits() const override { return false; }

 private:
  char* buffer_ = nullptr;
  size_t capacity_ = 0;
};

class EditingReader final : public LineReader {
 public:
  explicit EditingReader(std::string prompt) : prompt_(std::move(prompt)) {
    // Characters beyond ASCII need a locale that knows them.
    std::setlocale(LC_CTYPE, "");
    if (std::strcmp(nl_langinfo(CODESET), "UTF-8") != 0) std::setlocale(LC_CTYPE, "C.UTF-8");
    HistEvent event;
    history_ = history_init();
    history(history_, &event, H_SETSIZE, 1000);
    history(history_, &event, H_SETUNIQUE, 1);
    edit_ = el_init("skein", stdin, stdout, stderr);
    el_set(edit_, EL_CLIENTDATA, this);
    el_set(
        edit_, EL_PROMPT, +[](EditLine* edit) {
          void* self = nullptr;
          el_get(edit, EL_CLIENTDATA, &self);
          return static_cast<EditingReader*>(self)->prompt_.data();
        });
    el_set(edit_, EL_EDITOR, "emacs");
    el_set(edit_, EL_HIST, history, history_);
    el_set(edit_, EL_BIND, "^@", "ed-ignore", nullptr);  // Ctrl-D before the prompt
    el_source(edit_, nullptr);                           // the user's ~/.editrc
  }
  ~EditingReader() override {
    el_end(edit_);
    history_end(history_);
  }

  Event read(std::string& line) override {
    int size = 0;
    errno = 0;
    const char* text = el_gets(edit_, &size);
    if (text == nullptr || size <= 0) {
      if (errno != EINTR) return Event::kEnd;
      el_reset(edit_);
      return Event::kInterrupt;
    }
    line.assign(text, static_cast<size_t>(size));
    strip_end(line);
    HistEvent event;
    if (!line.empty()) history(history_, &event, H_ENTER, line.c_str());
    return Event::kLine;
  }
  bool edits() const override { return true; }

 private:
  std::string prompt_;
  History* history_ = nullptr;
  EditLine* edit_ = nullptr;
};

constexpr double kLoadBarWidth = 24;
constexpr std::chrono::seconds kSoon{1};
constexpr std::chrono::milliseconds kLoadRedraw{80};

std::string bar(double share) {
  const auto filled = static_cast<size_t>(kLoadBarWidth * share);
  return fmt::format("{:#<{}}{:.<{}}", "", filled, "", static_cast<size_t>(kLoadBarWidth) - filled);
}

}  // namespace

InterruptFlag::InterruptFlag() {
  clear();
  struct sigaction action = {};
  action.sa_handler = press;  // without SA_RESTART: reads end
  sigaction(SIGINT, &action, &before_);
}

InterruptFlag::~InterruptFlag() {
  sigaction(SIGINT, &before_, nullptr);
}

const std::atomic<bool>& InterruptFlag::pressed() const {
  return is_pressed;
}

void InterruptFlag::clear() {
  is_pressed.store(false, std::memory_order_relaxed);
}

std::unique_ptr<LineReader> LineReader::create(const std::string& prompt) {
  if (::isatty(STDIN_FILENO) == 1 && ::isatty(STDOUT_FILENO) == 1) {
    return std::make_unique<EditingReader>(prompt);
  }
  return std::make_unique<PlainReader>();
}

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
