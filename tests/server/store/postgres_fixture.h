// Servers on a schema of PostgreSQL, for tests that tests/fleet/with_postgres.sh runs.
#pragma once

#include <chrono>
#include <csignal>
#include <gtest/gtest.h>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "format/test_folder.h"
#include "server/store/postgres/postgres_database.h"
#include "server/store/store_helpers.h"

namespace skein {

// A process that stands still for as long as this lives.
class Frozen {
 public:
  explicit Frozen(int64_t pid) : pid_(static_cast<pid_t>(pid)) {
    SKEIN_CHECK(::kill(pid_, SIGSTOP) == 0, "{} cannot be stopped", pid);
  }
  ~Frozen() { ::kill(pid_, SIGCONT); }
  Frozen(const Frozen&) = delete;
  Frozen& operator=(const Frozen&) = delete;

 private:
  const pid_t pid_;
};

class PostgresTest : public ::testing::Test {
 protected:
  StoreOptions options(const std::string& node) {
    StoreOptions options = testing::on_driver({.state_dir = folder_ / "state"});
    options.node = node;
    options.group_window_us = 0;
    return options;
  }
  std::unique_ptr<Store> node(const std::string& name, int64_t lease_ms = kLeaseMs) {
    StoreOptions wanted = options(name);
    wanted.lease_ms = lease_ms;
    return testing::open_store(wanted);
  }
  std::unique_ptr<PostgresDatabase> database() {
    auto db = PostgresDatabase::open(options("x").url);
    SKEIN_CHECK(db.ok(), "{}", db.message());
    return std::move(*db);
  }
  // A batch in progress, of so many lines.
  static int64_t start(Store& store, int64_t lines) {
    const auto file = testing::upload(store, "a", "x");
    SKEIN_CHECK(testing::create_batch_of(store, "a", file->id).ok(), "no batch");
    const int64_t batch = store.batches().open_batches()->back().seq;
    std::vector<InputLine> all(static_cast<size_t>(lines));
    for (int64_t i = 0; i < lines; ++i) all[static_cast<size_t>(i)].line = i + 1;
    SKEIN_CHECK(store.batches().insert_lines(store.epoch(), batch, all).ok(), "no lines");
    SKEIN_CHECK(store.batches().begin(store.epoch(), batch).ok(), "it does not begin");
    return batch;
  }
  static std::vector<int64_t> claim(Store& store, int64_t batch, int64_t lines) {
    const std::vector<LineShare> shares = {{batch, lines}};
    const auto places = store.batches().claim_lines(store.epoch(), shares, {});
    SKEIN_CHECK(places.ok(), "{}", places.message());
    std::vector<int64_t> numbers;
    for (const LinePlace& place : *places) numbers.push_back(place.id.line);
    return numbers;
  }
  static Code finish(Store& store, int64_t epoch, const LineId& line) {
    return await_status([&](DoneStatus done) {
             store.batches().finish_line(epoch, line, {200, "r", "{}"}, std::move(done));
           })
        .code();
  }
  template <class Condition>
  static bool within(std::chrono::milliseconds time, const Condition& condition) {
    const auto end = std::chrono::steady_clock::now() + time;
    while (!condition()) {
      if (std::chrono::steady_clock::now() > end) return false;
      std::this_thread::sleep_for(std::chrono::milliseconds(10));
    }
    return true;
  }

  testing::TestFolder folder_;
};

}  // namespace skein
