#include "server/batch/batch_executor.h"

#include <algorithm>
#include <chrono>
#include <condition_variable>
#include <map>
#include <mutex>
#include <thread>
#include <utility>
#include <vector>

#include "base/log.h"
#include "base/patience.h"
#include "server/answer/answer_job.h"
#include "server/api/fields.h"
#include "server/batch/batch_request.h"
#include "server/batch/batch_runner.h"

namespace skein {
namespace {

constexpr std::chrono::milliseconds kPollInterval{100};
constexpr std::chrono::milliseconds kFaultPause{2'000};
constexpr TimeUs kMinRestUs = 1 * kUsPerSecond;
constexpr TimeUs kMaxRestUs = 30 * kUsPerSecond;

// A batch and the number of one of its lines.
using LineKey = std::pair<std::string, int64_t>;

LineResult failed_line(const api::Error& error) {
  return {error.status, "", api::error_body(api::Dialect::kOpenAi, error)};
}

// The engine has no room for it, or the key has used up its minute: nothing that the line can help.
// One that asks for more than the key's whole minute is told no time to come again.
bool may_pass(const api::Error& error) {
  if (error.is_final) return false;
  return error.status == 503 || (error.status == 429 && error.retry_after_s);
}

TimeUs rest_us(const api::Error& error) {
  const auto seconds = static_cast<TimeUs>(error.retry_after_s.value_or(0));
  return std::clamp(seconds * kUsPerSecond, kMinRestUs, kMaxRestUs);
}

api::Parsed<api::ChatRequest> read_chat(const json::Value& body) {
  auto request = api::read_chat_request(body);
  if (!request.ok()) return request;
  if (auto problem = api::find_unsupported(*request)) return std::move(*problem);
  return request;
}

// There is nobody to stream to.
api::Problem find_stream(const json::Value& body) {
  api::Problem problem;
  const api::Fields fields(body, "body", problem);
  if (fields.boolean("stream").value_or(false)) {
    fields.fail("stream", "A line of a batch cannot be streamed.");
  }
  return problem;
}

// The lines that run, and where their results go. Shared with their callbacks, which may come when
// the executor is gone: after close() they touch nothing any more.
class RunningLines {
 public:
  RunningLines(Store& store, const Clock& clock) : runner_(store, clock) {}

  // For the executor's thread alone.
  BatchRunner& runner() { return runner_; }

  // False: the executor ends. Otherwise it is time to look for work.
  bool wait(std::chrono::milliseconds at_most) {
    std::unique_lock lock(mutex_);
    changed_.wait_for(lock, at_most, [this] { return closed_ || freed_; });
    freed_ = false;
    return !closed_;
  }
  size_t size() const {
    const std::lock_guard lock(mutex_);
    return running_.size();
  }

  void begin(const LineKey& line) {
    const std::lock_guard lock(mutex_);
    running_[line] = nullptr;
  }
  // How the line is cancelled; it may have ended already.
  void set_request(const LineKey& line, std::shared_ptr<LiveRequest> request) {
    const std::lock_guard lock(mutex_);
    if (const auto found = running_.find(line); found != running_.end()) {
      found->second = std::move(request);
    }
  }

  void finish(const LineKey& line, LineResult result) {
    const std::lock_guard lock(mutex_);
    if (!end(line)) return;
    runner_.finish_line(line.first, line.second, std::move(result), [line](const Status& status) {
      if (status.ok() || status.code() == Code::kNotFound) return;
      log_warning("batch {}, line {}: {}", line.first, line.second, status.message());
    });
  }
  void give_back(const LineKey& line, TimeUs rest_us) {
    const std::lock_guard lock(mutex_);
    if (end(line)) runner_.return_line(line.first, line.second, rest_us);
  }

  // Cancels the lines of one batch, or of all with nullptr. What they still say is not heard.
  void cancel(const std::string* batch) {
    std::vector<std::shared_ptr<LiveRequest>> cancelled;
    {
      const std::lock_guard lock(mutex_);
      std::erase_if(running_, [&](auto& entry) {
        if (batch != nullptr && entry.first.first != *batch) return false;
        cancelled.push_back(std::move(entry.second));
        return true;
      });
    }
    for (const auto& request : cancelled) {
      if (request != nullptr) request->cancel();
    }
  }
  void close() {
    const std::lock_guard lock(mutex_);
    closed_ = true;
    changed_.notify_all();
  }

 private:
  // mutex_ held. False: it was cancelled, or there is no store any more.
  bool end(const LineKey& line) {
    freed_ = true;
    changed_.notify_all();
    return running_.erase(line) > 0 && !closed_;
  }

  BatchRunner runner_;
  mutable std::mutex mutex_;
  std::condition_variable changed_;
  std::map<LineKey, std::shared_ptr<LiveRequest>> running_;
  bool freed_ = false;
  bool closed_ = false;
};

// The answer of a line.
class LineSink final : public AnswerSink {
 public:
  LineSink(std::shared_ptr<RunningLines> lines, LineKey line)
      : lines_(std::move(lines)), line_(std::move(line)) {}

  bool is_background() const override { return true; }
  void send(const std::string& id, std::string body) override {
    lines_->finish(line_, {200, id, std::move(body)});
  }
  bool fail(const std::string& id, const api::Error& error, std::string_view) override {
    if (may_pass(error)) {
      lines_->give_back(line_, rest_us(error));
    } else {
      lines_->finish(line_, {error.status, id, api::error_body(api::Dialect::kOpenAi, error)});
    }
    return false;
  }
  // Lines ask for no stream, and are cancelled by the executor.
  void on_hangup(std::function<void()>) override {}
  void start(http::StreamHead, std::function<void()>) override {}
  http::WriteResult write(std::string_view) override { return http::WriteResult::kGone; }
  void finish() override {}

 private:
  const std::shared_ptr<RunningLines> lines_;
  const LineKey line_;
};

}  // namespace

class BatchExecutor::Impl {
 public:
  Impl(ServerContext& context, size_t max_running)
      : context_(context),
        max_running_(max_running),
        lines_(std::make_shared<RunningLines>(context.store, context.clock)),
        thread_([this] { run(); }) {}

  ~Impl() {
    lines_->close();
    thread_.join();
    lines_->cancel(nullptr);
    lines_->runner().stop();
  }

 private:
  void run() {
    const PatientScope patient;  // lines must not get lost between the store and the engine
    std::chrono::milliseconds pause{0};
    while (lines_->wait(pause)) {
      pause = kPollInterval;
      const size_t running = lines_->size();
      // What a line gives needs room on the disk, so lines wait for it.
      const bool takes_work =
          !context_.draining && running < max_running_ && !context_.store.space().is_low();
      const auto work = lines_->runner().next_lines(takes_work ? max_running_ - running : 0);
      if (!work.ok()) {
        log_error("batches cannot go on for now: {}", work.message());
        pause = kFaultPause;
        continue;
      }
      for (const std::string& batch : work->ended) lines_->cancel(&batch);
      // They would keep a server that drains from its end, and the next one runs them.
      if (context_.draining) {
        lines_->cancel(nullptr);
        lines_->runner().forget_running();
      }
      for (const BatchLine& line : work->lines) start(line);
    }
  }

  void start(const BatchLine& line) {
    const LineKey key(line.batch, line.line);
    lines_->begin(key);
    PrincipalPtr owner = context_.keys.find(line.owner);
    if (owner == nullptr) return lines_->finish(key, failed_line(api::unauthorized()));
    Call call{.route = match_route("POST", "/v1/batches").route,
              .id = {},
              .principal = std::move(owner),
              .priority = Priority::LOW};
    call.request.request_id = fmt::format("{}-{}", line.batch, line.line);
    const ParsedLine parsed = parse_batch_line(line.text, line.endpoint);
    if (!parsed.problems.empty()) return lines_->finish(key, refusal(parsed.problems.front()));
    if (auto problem = find_stream(parsed.body)) return lines_->finish(key, failed_line(*problem));
    if (line.endpoint == kBatchChatUrl) {
      answer(key, std::move(call), api::AnswerForm::kChat, read_chat(parsed.body));
    } else {
      answer(key, std::move(call), api::AnswerForm::kCompletion,
             api::read_completion_request(parsed.body));
    }
  }

  template <class Request>
  void answer(const LineKey& key, Call call, api::AnswerForm form, api::Parsed<Request> request) {
    if (!request.ok()) return lines_->finish(key, failed_line(request.error()));
    const auto job =
        std::make_shared<AnswerJob>(context_, std::move(call), form, std::move(*request),
                                    std::make_unique<LineSink>(lines_, key));
    job->begin();
    lines_->set_request(key, job);
  }

  ServerContext& context_;
  const size_t max_running_;
  const std::shared_ptr<RunningLines> lines_;
  std::thread thread_;
};

BatchExecutor::BatchExecutor(ServerContext& context, size_t max_running)
    : impl_(std::make_unique<Impl>(context, max_running)) {}

BatchExecutor::~BatchExecutor() = default;

}  // namespace skein
