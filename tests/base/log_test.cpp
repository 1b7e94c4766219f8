#include "base/log.h"

#include <chrono>
#include <csignal>
#include <fcntl.h>
#include <gtest/gtest.h>
#include <regex>
#include <sstream>
#include <string>
#include <thread>
#include <unistd.h>

namespace skein {
namespace {

// While it lives, stderr is a pipe that nobody reads.
class UnreadStderr {
 public:
  UnreadStderr() : kept_(dup(STDERR_FILENO)) {
    std::signal(SIGPIPE, SIG_IGN);  // a thread may still write when nobody can read any more
    EXPECT_EQ(pipe(ends_), 0);
    fcntl(ends_[1], F_SETPIPE_SZ, 4096);
    dup2(ends_[1], STDERR_FILENO);
    ::close(ends_[1]);
  }
  ~UnreadStderr() {
    dup2(kept_, STDERR_FILENO);
    ::close(kept_);
    ::close(ends_[0]);
  }
  // What was written up to `mark`.
  std::string read_until(const std::string& mark) const {
    std::string text;
    char buffer[4096];
    while (text.find(mark) == std::string::npos) {
      const ssize_t got = ::read(ends_[0], buffer, sizeof(buffer));
      if (got <= 0) break;
      text.append(buffer, static_cast<size_t>(got));
    }
    return text;
  }

 private:
  int kept_;
  int ends_[2] = {-1, -1};
};

TEST(Log, ALineHasTimeLevelAndOneLine) {
  const UnreadStderr unread;
  log_warning("a\nb\x1b{}", 1);
  const std::string line = unread.read_until("\n");
  EXPECT_TRUE(std::regex_match(
      line, std::regex(R"(\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z warning a\\x0ab\\x1b1\n)")))
      << line;
}

// What a terminal acts on although it is no byte below 32, and what makes a line read otherwise.
TEST(Log, NothingButTextIsWritten) {
  const UnreadStderr unread;
  log_info(
      "a\xc2\x9b"
      "2J|\x9b|\xc3|\xed\xa0\x80|\xe2\x80\xae|\xe2\x80\xa8|\xe2\x81\xa6|\xc0\x8a|\xf4\x90\x80\x80|"
      "\x7f|"
      "\xc2\xa0\xc3\xa9\xe2\x82\xac\xf0\x9f\x98\x80");
  const std::string line = unread.read_until("\n");
  EXPECT_NE(line.find(R"(info a\xc2\x9b2J|\x9b|\xc3|\xed\xa0\x80|\xe2\x80\xae|\xe2\x80\xa8|)"
                      R"(\xe2\x81\xa6|\xc0\x8a|\xf4\x90\x80\x80|\x7f|)"
                      "\xc2\xa0\xc3\xa9\xe2\x82\xac\xf0\x9f\x98\x80\n"),
            std::string::npos)
      << line;
}

TEST(Log, OfAKeyOnlyTheIdIsWritten) {
  const UnreadStderr unread;
  const std::string id = "sk-0123456789abcdef-";
  log_info(R"({{"request_id":"{}aa11","model":"sk-0123456789abcde-x"}} and {}bb%22 {}end)", id, id,
           id);
  const std::string line = unread.read_until("\n");
  EXPECT_NE(line.find("{\"request_id\":\"" + id + "...\",\"model\":\"sk-0123456789abcde-x\"} and " +
                      id + "... " + id + "...\n"),
            std::string::npos)
      << line;
}

TEST(BackgroundLog, AStderrThatNobodyReadsStopsNobody) {
  const UnreadStderr unread;
  const uint64_t before = dropped_log_lines();
  constexpr int kLines = 30'000;
  std::string text;
  {
    const BackgroundLog log;
    for (int i = 0; i < kLines; ++i) log_info("line {} {}", i, std::string(80, 'x'));
    EXPECT_GT(dropped_log_lines(), before);
    EXPECT_LT(dropped_log_lines() - before, kLines);
    std::thread reader([&] { text = unread.read_until("the end\n"); });
    flush_log(std::chrono::seconds(60));
    log_info("the end");
    reader.join();
  }
  // What was kept came whole and in order, and what is missing was said.
  std::istringstream lines(text);
  int kept = 0, last = -1;
  uint64_t said = 0;
  std::smatch found;
  for (std::string line; std::getline(lines, line);) {
    if (std::regex_search(line, found, std::regex(R"(info line (\d+) x{80}$)"))) {
      ++kept;
      EXPECT_GT(std::stoi(found[1]), last);
      last = std::stoi(found[1]);
    } else if (std::regex_search(line, found, std::regex(R"(warning (\d+) lines of the log)"))) {
      said += std::stoull(found[1]);
    }
  }
  EXPECT_EQ(said, dropped_log_lines() - before);
  EXPECT_EQ(static_cast<uint64_t>(kept) + said, kLines);
}

TEST(BackgroundLog, EndsAlthoughNobodyReads) {
  const UnreadStderr unread;
  const auto begin = std::chrono::steady_clock::now();
  {
    const BackgroundLog log;
    for (int i = 0; i < 1000; ++i) log_info("{}", std::string(80, 'x'));
  }
  EXPECT_LT(std::chrono::steady_clock::now() - begin, std::chrono::seconds(10));
}

}  // namespace
}  // namespace skein
