// Everything that an answer needs of a server, around a model that says what a test wants.
#pragma once

#include <atomic>
#include <condition_variable>
#include <deque>
#include <functional>
#include <gtest/gtest.h>
#include <map>
#include <memory>
#include <mutex>
#include <semaphore>
#include <string>
#include <vector>

#include "engine/manager/load_served_model.h"
#include "engine/tiny_model.h"
#include "server/answer/answer_job.h"
#include "server/context.h"

namespace skein::testing {

// The model's answer to everybody, byte by byte, and then its end. One test sets it before it asks.
struct Script {
  std::string text = "Hello";
  bool stops = true;  // at the end of the text; else it begins anew
  std::function<void()> before_step;
};

// Steps of no model.
class ScriptRunner final : public StepRunner {
 public:
  explicit ScriptRunner(const Script& script) : script_(script) {}

  void start(std::span<const Segment> segments,
             std::span<const RequestSampler* const> /*samplers*/) override {
    segments_ = segments;
  }
  TimeUs finish(const StepOutput& output) override {
    if (script_.before_step) script_.before_step();
    for (size_t i = 0; i < segments_.size(); ++i) {
      if (segments_[i].samples == 0) continue;
      const size_t at = said_[segments_[i].request.value]++;
      if (script_.stops && at >= script_.text.size()) {
        output.results[i].outcome = SegmentOutcome::kStop;
      } else {
        output.results[i].tokens = {static_cast<uint8_t>(script_.text[at % script_.text.size()])};
      }
    }
    return 0;
  }

 private:
  const Script& script_;
  std::span<const Segment> segments_;
  std::map<uint64_t, size_t> said_;  // bytes, by request
};

// What a sink was told; outlives it.
struct Told {
  std::string frames;
  std::string body;
  std::optional<api::Error> error;
  bool started = false;
  bool finished = false;  // a stream, well
  bool let_go = false;
  std::function<void()> hung_up;
  std::function<void()> ready;
  std::binary_semaphore end{0};
};

class FakeSink final : public AnswerSink {
 public:
  explicit FakeSink(std::shared_ptr<Told> told, bool is_background = false)
      : told_(std::move(told)), is_background_(is_background) {}
  ~FakeSink() override { told_->let_go = true; }

  // Of the next writes, in order; then they are taken. A bad_alloc is thrown where there is none.
  std::deque<std::optional<http::WriteResult>> results;

  bool is_background() const override { return is_background_; }
  void on_hangup(std::function<void()> hung_up) override { told_->hung_up = std::move(hung_up); }
  void start(http::StreamHead, std::function<void()> ready) override {
    told_->started = true;
    told_->ready = std::move(ready);
  }
  http::WriteResult write(std::string_view frames) override {
    if (!results.empty()) {
      const std::optional<http::WriteResult> result = results.front();
      results.pop_front();
      if (!result) throw std::bad_alloc();
      if (*result == http::WriteResult::kFull) told_->ready();  // at once
      if (*result != http::WriteResult::kTaken) return *result;
    }
    told_->frames += frames;
    return http::WriteResult::kTaken;
  }
  void finish() override {
    told_->finished = true;
    told_->end.release();
  }
  void send(const std::string&, std::string body) override {
    told_->body = std::move(body);
    told_->end.release();
  }
  bool fail(const std::string&, const api::Error& error, std::string_view frame) override {
    told_->error = error;
    const bool in_stream = !told_->frames.empty();
    if (in_stream) told_->frames += frame;
    told_->end.release();
    return in_stream;
  }

 private:
  const std::shared_ptr<Told> told_;
  const bool is_background_;
};

struct WorldOptions {
  size_t queue_limit = 16;  // tasks that wait for the workers, of a class; 0: they take none
  uint64_t memory_bytes = ByteBudget::kDefaultBytes;
};

class AnswerWorld {
 public:
  explicit AnswerWorld(WorldOptions options = {})
      : memory(options.memory_bytes),
        workers({.threads = 1, .queue_limit = options.queue_limit}, clock),
        forms({.threads = 1, .queue_limit = options.queue_limit}, clock) {
    StoreOptions store;
    store.state_dir = folder_ / "state";
    auto opened = Store::open(store);
    EXPECT_TRUE(opened.ok()) << opened.message();
    store_ = std::move(*opened);
    keys_ = std::make_unique<KeyRing>(store_->salt_key());
    serving_.engine.scheduler.pool_blocks = 64;
    models = std::make_unique<SchedulerManager>(
        SchedulerManager::Options{.memory_bytes = uint64_t{2} << 30}, loader(), clock);
    EXPECT_TRUE(models->add({.id = "tiny", .path = write_tiny_model(folder_)}).ok());
    EXPECT_TRUE(models->add({.id = "broken", .path = folder_ / "nothing"}).ok());
    settings.default_model = "tiny";
    settings.version = "test";
    settings.log_request = [this](const FinishedRequest& request) {
      const std::lock_guard lock(mutex_);
      log_.push_back(request);
      logged_.notify_all();
    };
    context = std::unique_ptr<ServerContext>(new ServerContext{.settings = settings,
                                                               .clock = clock,
                                                               .models = *models,
                                                               .store = *store_,
                                                               .keys = *keys_,
                                                               .limiter = limiter,
                                                               .metrics = metrics,
                                                               .live = live,
                                                               .recent = recent,
                                                               .feed = feed,
                                                               .delivery = delivery,
                                                               .memory = memory,
                                                               .workers = workers,
                                                               .forms = forms,
                                                               .scrapes = workers,
                                                               .ready = ready_,
                                                               .draining = draining});
  }
  ~AnswerWorld() { models->shutdown(kUsPerSecond); }

  // Loads the model, so that the next answers find it.
  void load() { EXPECT_TRUE(models->acquire("tiny").ok()); }

  std::shared_ptr<AnswerJob> job(const api::AnswerOptions& wanted, std::unique_ptr<AnswerSink> sink,
                                 const api::AnswerKind& kind = api::AnswerKind::kCompletion) {
    api::CompletionRequest request;
    request.options = wanted;
    request.prompts = {std::string("Say")};
    Call call{
        .route = match_route("POST", "/v1/completions").route, .id = {}, .principal = principal};
    call.request.request_id = "r-1";
    return std::make_shared<AnswerJob>(*context, std::move(call), kind, std::move(request),
                                       std::move(sink));
  }
  // Begins an answer and waits for its end.
  std::shared_ptr<Told> ask(const api::AnswerOptions& wanted,
                            const api::AnswerKind& kind = api::AnswerKind::kCompletion) {
    auto told = std::make_shared<Told>();
    job(wanted, std::make_unique<FakeSink>(told), kind)->begin();
    told->end.acquire();
    return told;
  }

  // The lines of the request log, when there are so many.
  std::vector<FinishedRequest> log(size_t count) {
    std::unique_lock lock(mutex_);
    logged_.wait(lock, [&] { return log_.size() >= count; });
    return log_;
  }

 private:
  SchedulerManager::Loader loader() {
    return [this, load = make_model_loader(serving_, pool_, clock)](
               const ModelConfig& config,
               const SchedulerManager::MakeRoom& make_room) -> Result<ServedModelParts> {
      if (before_load) before_load();
      SKEIN_ASSIGN(ServedModelParts parts, load(config, make_room));
      parts.make_runner = [this]() -> Result<std::unique_ptr<StepRunner>> {
        return std::unique_ptr<StepRunner>(std::make_unique<ScriptRunner>(script));
      };
      return parts;
    };
  }

  TestFolder folder_;
  ComputePool pool_{1};
  ServingOptions serving_;
  std::unique_ptr<Store> store_;
  std::unique_ptr<KeyRing> keys_;
  std::atomic<bool> ready_{true};
  std::mutex mutex_;
  std::condition_variable logged_;
  std::vector<FinishedRequest> log_;

 public:
  ServerSettings settings;
  Script script;
  std::function<void()> before_load;  // on the thread that loads
  std::shared_ptr<Principal> principal = std::make_shared<Principal>();
  SystemClock clock;
  std::atomic<bool> draining{false};
  RateLimiter limiter{clock};
  Metrics metrics{clock};
  LiveRequests live;
  RecentRequests recent;
  LiveFeed feed;
  ByteBudget memory;
  std::unique_ptr<SchedulerManager> models;
  std::unique_ptr<ServerContext> context;
  Delivery delivery;  // the threads end first
  http::Workers workers;
  http::Workers forms;
};

}  // namespace skein::testing
