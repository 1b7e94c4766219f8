// Works on a state folder until it is killed, and says on stdout what the store acknowledged: what
// was said must be true afterwards.
//
//   store_child lines DIR     runs the lines of the batches that are there
//   store_child mixed DIR     uploads, creates, cancels and expires
//   store_child scripted DIR  keys, uploads, lines, deletions, in a fixed order, and ends
//   store_child full DIR      fills up a small disk, then gets more room; exit status 0: all well
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <string>
#include <sys/resource.h>
#include <unistd.h>

#include "server/store/store_helpers.h"

namespace skein {
namespace {

using testing::batch_of;
using testing::cancel;
using testing::create_batch_of;
using testing::input_of;
using testing::upload;

// One write, so that a kill cannot cut a line in two.
void say(const std::string& text) {
  if (::write(STDOUT_FILENO, (text + "\n").c_str(), text.size() + 1) < 0) std::abort();
}

int run_lines(const std::string& dir) {
  const auto store = testing::open_store({.state_dir = dir});
  const SystemClock clock;
  BatchRunner runner(*store, clock, testing::no_models);
  for (;;) {
    const auto work = runner.next_lines(8);
    SKEIN_CHECK(work.ok(), "{}", work.message());
    if (work->empty() &&
        testing::integer_of(*store, "SELECT count(*) FROM batches WHERE output_file IS NULL") ==
            0) {
      return 0;
    }
    for (const BatchLine& line : *work) {
      const std::string body = fmt::format(R"({{"line": {}, "by": {}}})", line.id.line, ::getpid());
      const int32_t code = line.id.line % 10 == 0 ? 400 : 200;
      runner.finish_line(line.id, {code, "r", body}, [line](const Status& status) {
        SKEIN_CHECK(status.ok(), "{}", status.message());
        say(fmt::format("{} {}", line.id.line, ::getpid()));
      });
    }
    ::usleep(20'000);  // lines take their time, so that kills find some of everything
  }
}

int run_mixed(const std::string& dir) {
  const auto store = testing::open_store({.state_dir = dir, .group_window_us = kUsPerMs});
  ManualClock clock;
  BatchRunner runner(*store, clock, testing::no_models);
  for (int i = 0;; ++i) {
    const std::string owner = std::to_string(::getpid());
    const auto file = upload(*store, owner, input_of(50));
    SKEIN_CHECK(file.ok(), "{}", file.message());
    say("file " + file->id);
    const std::string batch = create_batch_of(*store, owner, file->id)->id;
    say("batch " + batch);
    if (i % 2 == 0) {
      SKEIN_CHECK(runner.next_lines(0).ok(), "next_lines failed");
      SKEIN_CHECK(cancel(*store, batch, {owner}).ok(), "cancel failed");
      say("cancelled " + batch);
    } else {
      SKEIN_CHECK(runner.next_lines(0).ok(), "next_lines failed");
      clock.advance(25 * 3600 * kUsPerSecond);
      while (batch_of(*store, batch, {owner})->status != BatchStatus::kExpired) {
        SKEIN_CHECK(runner.next_lines(0).ok(), "next_lines failed");
      }
      say("expired " + batch);
    }
  }
}

KeyRecord key_named(const std::string& name) {
  KeyRecord key;
  key.name = name;
  key.id = "id-" + name;
  return key;
}

int run_scripted(const std::string& dir) {
  const auto store = testing::open_store({.state_dir = dir, .group_window_us = 0});
  const SystemClock clock;
  BatchRunner runner(*store, clock, testing::no_models);
  for (int round = 0; round < 4; ++round) {
    const std::string name = fmt::format("k{}", round);
    SKEIN_CHECK(await<KeyRecord>([&](Done<KeyRecord> done) {
                  store->keys().add(key_named(name), std::move(done));
                }).ok(),
                "no key");
    say("key " + name);
    const auto file = upload(*store, "a", input_of(40));
    say("file " + file->id);
    const auto other = upload(*store, "a", std::string(9'000, 'x'));
    say("file " + other->id);
    const std::string batch = create_batch_of(*store, "a", file->id)->id;
    say("batch " + batch);
    for (int finished = 0; finished < 5;) {  // most lines are left, so that the rows stay
      const auto work = runner.next_lines(1);
      for (const BatchLine& line : *work) {
        SKEIN_CHECK(testing::finish(runner, line, 200, "{}").ok(), "no result");
        say(fmt::format("line {} {}", line.batch, line.id.line));
        ++finished;
      }
    }
    say("deleting " + other->id);  // from here on it may be there or not
    SKEIN_CHECK(await<FileRecord>([&](Done<FileRecord> done) {
                  store->files().remove(other->id, {"a"}, std::move(done));
                }).ok(),
                "not deleted");
    say("deleted " + other->id);
    SKEIN_CHECK(await<KeyRecord>([&](Done<KeyRecord> done) {
                  store->keys().revoke(name, std::move(done));
                }).ok(),
                "not revoked");
    say("revoked " + name);
  }
  return 0;
}

void limit_files(rlim_t bytes) {
  rlimit limit = {};
  ::getrlimit(RLIMIT_FSIZE, &limit);
  limit.rlim_cur = bytes;
  SKEIN_CHECK(::setrlimit(RLIMIT_FSIZE, &limit) == 0, "setrlimit failed");
}

int run_full(const std::string& dir) {
  std::signal(SIGXFSZ, SIG_IGN);
  const auto store = testing::open_store({.state_dir = dir, .group_window_us = 0});
  ManualClock clock;
  BatchRunner runner(*store, clock, testing::no_models);
  const auto file = upload(*store, "a", input_of(300));
  const std::string batch = create_batch_of(*store, "a", file->id)->id;
  while (batch_of(*store, batch, {"a"})->status == BatchStatus::kValidating) {
    SKEIN_CHECK(runner.next_lines(0).ok(), "validation failed");
  }

  limit_files(400'000);
  const auto big = upload(*store, "a", std::string(1'000'000, 'x'));
  SKEIN_CHECK(big.status().code() == Code::kResourceExhausted, "a big upload: {}",
              big.status().message());
  const std::string body = "\"" + std::string(10'000, 'x') + "\"";
  size_t stored = 0;
  Status refused;
  const auto work = runner.next_lines(300);
  for (const BatchLine& line : *work) {
    refused = testing::finish(runner, line, 200, body);
    if (!refused.ok()) break;
    ++stored;
  }
  SKEIN_CHECK(refused.code() == Code::kResourceExhausted, "a full disk: '{}'", refused.message());
  SKEIN_CHECK(batch_of(*store, batch, {"a"})->completed_lines == stored, "reads go on");

  limit_files(RLIM_INFINITY);
  SKEIN_CHECK(upload(*store, "a", std::string(1'000'000, 'x')).ok(), "room again");
  for (const BatchLine& line : *work) {  // kNotFound: it has its result, or comes again
    const Status status = testing::finish(runner, line, 200, body);
    SKEIN_CHECK(status.ok() || status.code() == Code::kNotFound, "{}", status.message());
  }
  clock.advance(10 * kUsPerSecond);
  for (int i = 0; i < 6; ++i) {
    const auto again = runner.next_lines(10);
    SKEIN_CHECK(again.ok(), "next_lines failed");
    for (const BatchLine& line : *again) {
      SKEIN_CHECK(testing::finish(runner, line, 200, body).ok(), "no result");
    }
  }
  const auto done = batch_of(*store, batch, {"a"});
  SKEIN_CHECK(done->status == BatchStatus::kCompleted && done->completed_lines == 300, "completed");
  std::printf("%zu lines fitted\n", stored);
  return 0;
}

}  // namespace
}  // namespace skein

int main(int argc, char** argv) {
  if (argc != 3) return 2;
  const std::string mode = argv[1];
  if (mode == "lines") return skein::run_lines(argv[2]);
  if (mode == "mixed") return skein::run_mixed(argv[2]);
  if (mode == "scripted") return skein::run_scripted(argv[2]);
  return skein::run_full(argv[2]);
}
