// Store calls that wait, for tests.
#pragma once

#include <atomic>
#include <cstdlib>
#include <functional>
#include <gtest/gtest.h>
#include <memory>
#include <string>
#include <vector>

#include "base/check.h"
#include "server/batch/batch_runner.h"
#include "server/store/store.h"

namespace skein::testing {

inline bool is_on_postgres() {
  return std::getenv("SKEIN_TEST_STORE") != nullptr;
}

// The store of a folder; or, where tests/fleet/with_postgres.sh runs the test, a schema of its
// PostgreSQL that stands for the folder.
inline StoreOptions on_driver(StoreOptions options) {
  const char* url = std::getenv("SKEIN_TEST_STORE");
  if (url == nullptr || !options.url.empty()) return options;
  const std::string schema = fmt::format("t{:x}", std::hash<std::string>()(options.state_dir));
  StoreOptions whole;
  whole.url = url;
  whole.is_server = false;
  const auto store = Store::open(whole);
  SKEIN_CHECK(store.ok(), "{}", store.message());
  const Status made = (*store)->thread().write_and_wait(
      [&schema](Database& db) { return db.exec("CREATE SCHEMA IF NOT EXISTS " + schema); });
  SKEIN_CHECK(made.ok() || made.code() == Code::kAlreadyExists, "{}", made.message());
  options.url = fmt::format("{}&options=-csearch_path%3D{}", url, schema);
  if (options.node.empty()) options.node = "test";
  return options;
}

inline std::unique_ptr<Store> open_store(StoreOptions options) {
  auto store = Store::open(on_driver(std::move(options)));
  SKEIN_CHECK(store.ok(), "{}", store.message());
  return std::move(*store);
}

inline std::unique_ptr<Store> open_state(const std::string& state_dir) {
  StoreOptions options;
  options.state_dir = state_dir;
  options.group_window_us = 0;
  return open_store(std::move(options));
}

inline Result<FileRecord> upload(Store& store, const std::string& owner, const std::string& text,
                                 const std::string& purpose = "batch") {
  SKEIN_ASSIGN(auto writer, store.files().create(owner));
  SKEIN_TRY(writer->append(text));
  return await<FileRecord>([&](Done<FileRecord> done) {
    store.files().commit(std::move(writer), {owner, purpose, "input.jsonl"}, std::move(done));
  });
}

inline Result<std::string> content_of(Store& store, const std::string& id, const Scope& scope) {
  SKEIN_ASSIGN(const OpenFile file, await<OpenFile>([&](Done<OpenFile> done) {
                 store.files().open(id, scope, std::move(done));
               }));
  return file.content->read(0, file.record.bytes + 1);
}

inline Result<BatchRecord> create_batch_of(Store& store, const std::string& owner,
                                           const std::string& file) {
  return await<BatchRecord>([&](Done<BatchRecord> done) {
    store.batches().create({owner, "/v1/chat/completions", file, "{}"}, std::move(done));
  });
}

inline Result<BatchRecord> batch_of(Store& store, const std::string& id, const Scope& scope) {
  return await<BatchRecord>(
      [&](Done<BatchRecord> done) { store.batches().get(id, scope, std::move(done)); });
}

inline Result<BatchRecord> cancel(Store& store, const std::string& id, const Scope& scope) {
  return await<BatchRecord>(
      [&](Done<BatchRecord> done) { store.batches().cancel(id, scope, std::move(done)); });
}

inline Status finish(BatchRunner& runner, const BatchLine& line, int32_t status_code,
                     const std::string& body) {
  return await_status([&](DoneStatus done) {
    runner.finish_line(line.id, {status_code, "req", body}, std::move(done));
  });
}

// The models of a server that has none by name; lines that name none run anyway.
inline std::vector<std::string> no_models() {
  return {};
}

// Runs a statement on the store's own connection.
inline Status sql(Store& store, const std::string& text) {
  return await_status([&](DoneStatus done) {
    const auto job = [text](Database& db) { return db.exec(text); };
    if (store.is_shared()) {
      store.thread().write(job, std::move(done));
    } else {
      store.thread().read(job, std::move(done));  // no transaction: pragmas want none
    }
  });
}

inline int64_t integer_of(Store& store, const std::string& text) {
  const auto value = await<int64_t>([&](Done<int64_t> done) {
    store.thread().read<int64_t>([text](Database& db) { return db.integer(text); },
                                 std::move(done));
  });
  SKEIN_CHECK(value.ok(), "{}", value.message());
  return *value;
}

// `count` good lines: custom_id "c<line>", a body that names the line.
inline std::string input_of(int count) {
  std::string text;
  for (int i = 1; i <= count; ++i) {
    text += fmt::format(R"({{"custom_id": "c{0}", "method": "POST", "url": )"
                        R"("/v1/chat/completions", "body": {{"line": {0}}}}})"
                        "\n",
                        i);
  }
  return text;
}

}  // namespace skein::testing

// For a test of SQLite's own ways, or of files in the state folder.
#define SKEIN_SQLITE_ALONE()                                                   \
  do {                                                                         \
    if (::skein::testing::is_on_postgres()) GTEST_SKIP() << "is about SQLite"; \
  } while (false)
