// `skein top`: what a server is doing, in a terminal.
#include <cstdio>
#include <cstdlib>
#include <fmt/format.h>
#include <memory>
#include <sys/ioctl.h>
#include <unistd.h>

#include "apps/commands.h"
#include "apps/terminal.h"
#include "apps/top_text.h"
#include "bench/http_load.h"

namespace skein::apps {
namespace {

struct TopOptions {
  std::string url = "http://127.0.0.1:8080";
  std::string key;
  uint32_t frames = 0;  // 0: until Ctrl-C on a terminal, 1 elsewhere
};

constexpr const char* kTopManual =
    "On a terminal the picture is drawn anew four times a second until Ctrl-C; elsewhere it is "
    "printed once, as plain text. With keys configured it needs one, in --key or in "
    "SKEIN_API_KEY: an admin's shows all requests, another one its own and the totals.";

TopSize terminal_size() {
  winsize size{};
  if (::ioctl(STDOUT_FILENO, TIOCGWINSZ, &size) != 0 || size.ws_col == 0 || size.ws_row == 0) {
    return {};
  }
  return {size.ws_col, size.ws_row};
}

// The screen as it was comes back with the end.
class Screen {
 public:
  Screen() { std::fputs("\x1b[?1049h\x1b[?25l", stdout); }
  ~Screen() {
    std::fputs("\x1b[?25h\x1b[?1049l", stdout);
    std::fflush(stdout);
  }
  Screen(const Screen&) = delete;
  Screen& operator=(const Screen&) = delete;

  static void draw(const std::vector<std::string>& lines) {
    std::string all = "\x1b[H";
    for (size_t i = 0; i < lines.size(); ++i) {
      all.append(lines[i]).append("\x1b[K").append(i + 1 < lines.size() ? "\r\n" : "");
    }
    std::fputs(all.append("\x1b[J").c_str(), stdout);
    std::fflush(stdout);
  }
};

CommandResult top(const TopOptions& options) {
  bench::HttpTarget target;
  SKEIN_ASSIGN(target.url, bench::parse_url(options.url));
  const char* known = std::getenv("SKEIN_API_KEY");
  target.keys[0] = options.key.empty() && known != nullptr ? known : options.key;
  target.patience_us = 10 * kUsPerSecond;
  const bool on_terminal = ::isatty(STDOUT_FILENO) == 1;
  const uint32_t wanted = options.frames > 0 || on_terminal ? options.frames : 1;
  const InterruptFlag interrupt;
  const std::unique_ptr<Screen> screen = on_terminal ? std::make_unique<Screen>() : nullptr;
  nlohmann::json before;
  uint32_t shown = 0;
  const auto on_frame = [&](std::string_view data) {
    nlohmann::json now = nlohmann::json::parse(data, nullptr, false);
    // Rates need two frames.
    if (!before.is_null()) {
      const TopSize size = on_terminal ? terminal_size() : TopSize{SIZE_MAX, SIZE_MAX};
      const std::vector<std::string> lines = top_lines(before, now, size);
      if (on_terminal) {
        Screen::draw(lines);
      } else {
        for (const std::string& line : lines) fmt::print("{}\n", line);
        std::fflush(stdout);
      }
      ++shown;
    }
    before = std::move(now);
    return wanted == 0 || shown < wanted;
  };
  const Status watched = bench::watch_events(target, "/live", on_frame, interrupt.pressed());
  if (!watched.ok()) return unavailable("{}: {}", options.url, watched.message());
  if (wanted > 0 && shown < wanted && !interrupt.pressed()) {
    return unavailable("{}: the server has ended the stream", options.url);
  }
  return {};
}

}  // namespace

void add_top(CLI::App& app, CommandResult& result) {
  auto options = std::make_shared<TopOptions>();
  CLI::App* command =
      app.add_subcommand("top", "What a server is doing: batch, KV, queue, requests");
  command->footer(kTopManual);
  command->add_option("--url", options->url, "The server")->capture_default_str();
  command->add_option("--key", options->key, "An API key; SKEIN_API_KEY where it is absent");
  command->add_option("--frames", options->frames, "End after so many");
  command->callback([options, &result] { result = top(*options); });
}

}  // namespace skein::apps
