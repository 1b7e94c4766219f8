// A store with a runner of batches on a clock that tests turn, and what their tests do with it.
#pragma once

#include <atomic>
#include <gtest/gtest.h>
#include <memory>
#include <nlohmann/json.hpp>
#include <sstream>
#include <string>
#include <vector>

#include "format/test_folder.h"
#include "server/store/store_helpers.h"

namespace skein {

class BatchTest : public ::testing::Test {
 protected:
  BatchTest() { reopen(); }

  // As after a restart: memory is gone, the database is not.
  void reopen() {
    runner_.reset();
    store_.reset();
    store_ = testing::open_store({.state_dir = folder_ / "state",
                                  .group_window_us = 0,
                                  .unix_time_s = [this] { return now_s_.load(); }});
    runner_ = std::make_unique<BatchRunner>(*store_, clock_, [this] { return models_; });
  }
  std::vector<BatchLine> lines(size_t n) {
    auto work = runner_->next_lines(n);
    SKEIN_CHECK(work.ok(), "{}", work.message());
    return std::move(*work);
  }

  // A batch that has passed validation, when `text` is good.
  std::string start(const std::string& owner, const std::string& text) {
    const auto file = testing::upload(*store_, owner, text);
    SKEIN_CHECK(file.ok(), "{}", file.message());
    const auto batch = testing::create_batch_of(*store_, owner, file->id);
    SKEIN_CHECK(batch.ok(), "{}", batch.message());
    EXPECT_EQ(batch->status, BatchStatus::kValidating);
    while (status(batch->id) == "validating") lines(0);
    return batch->id;
  }
  BatchRecord get(const std::string& id) { return *testing::batch_of(*store_, id, {"", true}); }
  std::string status(const std::string& id) { return std::string(name_of(get(id).status)); }
  void settle() {
    for (int i = 0; i < 4; ++i) lines(0);
  }
  std::vector<nlohmann::json> jsonl(const std::string& file) {
    std::vector<nlohmann::json> all;
    std::istringstream text(*testing::content_of(*store_, file, {"", true}));
    for (std::string one; std::getline(text, one);) all.push_back(nlohmann::json::parse(one));
    return all;
  }

  testing::TestFolder folder_;
  std::atomic<int64_t> now_s_{1'000'000};
  std::vector<std::string> models_;  // that the server has
  ManualClock clock_;
  std::unique_ptr<Store> store_;
  std::unique_ptr<BatchRunner> runner_;
};

class FakeRequest final : public LiveRequest {
 public:
  void explain(std::function<void(RequestExplanation)>) override {}
  RequestBrief brief() const override { return {}; }
  void cancel() override { cancelled = true; }

  std::atomic<bool> cancelled{false};
};

inline std::vector<int64_t> numbers(const std::vector<BatchLine>& lines) {
  std::vector<int64_t> all;
  for (const BatchLine& line : lines) all.push_back(line.id.line);
  return all;
}

}  // namespace skein
