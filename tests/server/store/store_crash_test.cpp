// kill -9 at random moments: what the store acknowledged is there, and nothing is there twice.
#include <chrono>
#include <csignal>
#include <fcntl.h>
#include <future>
#include <gtest/gtest.h>
#include <map>
#include <nlohmann/json.hpp>
#include <set>
#include <spawn.h>
#include <sstream>
#include <sys/wait.h>
#include <thread>

#include "base/rng.h"
#include "format/test_folder.h"
#include "server/store/store_helpers.h"

namespace skein {
namespace {

using testing::batch_of;
using testing::content_of;
using testing::input_of;
using testing::integer_of;
using testing::open_state;

struct Ended {
  std::string said;
  int status = -1;  // as waitpid gives it
};

enum class Since : uint8_t { kStart, kFirstWord };

// Runs the child and kills it `kill_after_us` after it was started or said its first word, unless
// it ends before.
Ended run_child(const char* mode, const std::string& dir, TimeUs kill_after_us,
                Since since = Since::kStart) {
  int ends[2];
  SKEIN_CHECK(::pipe2(ends, O_CLOEXEC) == 0, "pipe failed");
  posix_spawn_file_actions_t actions;
  posix_spawn_file_actions_init(&actions);
  posix_spawn_file_actions_adddup2(&actions, ends[1], STDOUT_FILENO);
  std::string program = STORE_CHILD;
  std::string mode_text = mode;
  std::string dir_text = dir;
  char* arguments[] = {program.data(), mode_text.data(), dir_text.data(), nullptr};
  pid_t child = 0;
  SKEIN_CHECK(::posix_spawn(&child, STORE_CHILD, &actions, nullptr, arguments, environ) == 0,
              "spawn failed");
  posix_spawn_file_actions_destroy(&actions);
  ::close(ends[1]);
  Ended ended;
  std::promise<void> first_word;
  std::thread reader([&] {
    char buffer[4096];
    for (bool first = true;; first = false) {
      const ssize_t count = ::read(ends[0], buffer, sizeof(buffer));
      if (first) first_word.set_value();
      if (count <= 0) return;
      ended.said.append(buffer, static_cast<size_t>(count));
    }
  });
  if (kill_after_us != kNever) {
    if (since == Since::kFirstWord) first_word.get_future().wait();
    std::this_thread::sleep_for(std::chrono::microseconds(kill_after_us));
    ::kill(child, SIGKILL);
  }
  ::waitpid(child, &ended.status, 0);
  reader.join();
  ::close(ends[0]);
  return ended;
}

TimeUs moment(Rng& rng, uint64_t max_ms) {
  return static_cast<TimeUs>(rng.between(1, max_ms * 1000));
}

// Half of the kills find it opening the store, half at work.
Since since_of(int round) {
  return round % 2 == 0 ? Since::kStart : Since::kFirstWord;
}

TEST(StoreCrash, EveryAcknowledgedLineIsKeptAndNoneTwice) {
  constexpr int kLines = 500;
  const testing::TestFolder folder;
  const std::string dir = folder / "state";
  std::string batch;
  {
    const auto store = open_state(dir);
    const auto file = testing::upload(*store, "a", input_of(kLines));
    batch = testing::create_batch_of(*store, "a", file->id)->id;
  }
  std::map<int64_t, int64_t> acknowledged;  // line -> the process that did it
  const auto note = [&acknowledged](const std::string& said) {
    std::istringstream text(said);
    for (int64_t line, pid; text >> line >> pid;) {
      EXPECT_TRUE(acknowledged.emplace(line, pid).second) << "line " << line << " twice";
    }
  };
  Rng rng(20260101);
  int interrupted = 0;
  for (int round = 0; round < 20; ++round) {
    const Ended ended = run_child("lines", dir, moment(rng, 100), since_of(round));
    ASSERT_TRUE(WIFSIGNALED(ended.status) || ended.status == 0) << ended.status;
    interrupted += WIFSIGNALED(ended.status) ? 1 : 0;
    note(ended.said);
    const auto store = open_state(dir);  // checks the database whole
    const auto record = batch_of(*store, batch, {"a"});
    EXPECT_GE(record->completed_lines + record->failed_lines, acknowledged.size());
    if (record->status == BatchStatus::kInProgress) {
      EXPECT_EQ(integer_of(*store, "SELECT count(*) FROM batch_lines WHERE status_code = 200"),
                static_cast<int64_t>(record->completed_lines));
      EXPECT_EQ(integer_of(*store, "SELECT count(*) FROM batch_lines WHERE status_code >= 400"),
                static_cast<int64_t>(record->failed_lines));
    }
  }
  EXPECT_GE(interrupted, 10);  // else the test has shown little
  note(run_child("lines", dir, kNever).said);

  const auto store = open_state(dir);
  const auto record = batch_of(*store, batch, {"a"});
  ASSERT_EQ(record->status, BatchStatus::kCompleted);
  EXPECT_EQ(record->completed_lines + record->failed_lines, 500U);
  std::set<int64_t> seen;
  size_t given_up = 0;
  for (const std::string& file : {record->output_file, record->error_file}) {
    std::istringstream text(*content_of(*store, file, {"a"}));
    int64_t last = 0;
    for (std::string one; std::getline(text, one);) {
      const auto response = nlohmann::json::parse(one)["response"];
      const auto& body = response["body"];
      if (response["status_code"] == 500) {  // it ran alone at two of the kills
        EXPECT_EQ(body["error"]["code"], "request_crashed_server");
        ++given_up;
        continue;
      }
      const int64_t line = body["line"];
      EXPECT_TRUE(seen.insert(line).second) << "line " << line << " has two results";
      EXPECT_GT(line, last);
      last = line;
      const auto said = acknowledged.find(line);
      if (said != acknowledged.end()) {
        EXPECT_EQ(body["by"], said->second) << "line " << line;
      }
    }
  }
  EXPECT_EQ(seen.size() + given_up, static_cast<size_t>(kLines));
  EXPECT_LT(given_up, 10U);  // a line a death at most
  EXPECT_EQ(integer_of(*store, "SELECT count(*) FROM files"), 3);
}

void check_promises(Store& store, const std::string& said) {
  std::istringstream text(said);
  for (std::string what, id; text >> what >> id;) {
    if (what == "file") {
      const auto content = content_of(store, id, {"", true});
      ASSERT_TRUE(content.ok()) << content.message();
      EXPECT_EQ(*content, input_of(50));
      continue;
    }
    const auto batch = batch_of(store, id, {"", true});
    ASSERT_TRUE(batch.ok()) << id;
    const BatchStatus status = batch->status;
    if (what == "expired") {
      EXPECT_EQ(status, BatchStatus::kExpired);
    }
    if (what == "cancelled") {
      EXPECT_TRUE(status == BatchStatus::kCancelling || status == BatchStatus::kCancelled);
    }
  }
}

TEST(StoreCrash, UploadsCreationsCancelsAndExpiriesAreKept) {
  const testing::TestFolder folder;
  const std::string dir = folder / "state";
  Rng rng(7);
  std::string said;
  for (int round = 0; round < 20; ++round) {
    said += run_child("mixed", dir, moment(rng, 200), since_of(round)).said;
    const auto store = open_state(dir);
    check_promises(*store, said);
    const std::filesystem::directory_iterator contents(dir + "/files");
    EXPECT_EQ(std::distance(begin(contents), end(contents)),
              integer_of(*store, "SELECT count(*) FROM files"));
  }
  EXPECT_NE(said.find("cancelled"), std::string::npos);
  EXPECT_NE(said.find("expired"), std::string::npos);
}

TEST(StoreCrash, AFullDiskIsAStatusAndPasses) {
  const testing::TestFolder folder;
  const Ended ended = run_child("full", folder / "state", kNever);
  EXPECT_EQ(ended.status, 0);
  EXPECT_NE(ended.said.find("lines fitted"), std::string::npos);
  const auto store = open_state(folder / "state");  // checks the database whole
  EXPECT_EQ(integer_of(*store, "SELECT count(*) FROM batch_lines"), 0);
}

}  // namespace
}  // namespace skein
