#include "server/batch/batch_executor.h"

#include <algorithm>
#include <future>
#include <pthread.h>
#include <utility>

#include "base/log.h"
#include "base/patience.h"
#include "server/answer/answer_job.h"
#include "server/answer/recall.h"
#include "server/api/fields.h"
#include "server/api/responses_request.h"
#include "server/batch/batch_request.h"
#include "server/vectors/vector_work.h"

namespace skein {
namespace {

constexpr TimeUs kMinRestUs = 1 * kUsPerSecond;
constexpr TimeUs kMaxRestUs = 30 * kUsPerSecond;

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

// There is nobody to stream to.
api::Problem find_stream(const json::Value& body) {
  api::Problem problem;
  const api::Fields fields(body, "body", problem);
  if (fields.boolean("stream").value_or(false)) {
    fields.fail("stream", "A line of a batch cannot be streamed.");
  }
  return problem;
}

void store_result(BatchRunner& runner, const LineId& line, const std::string& batch,
                  LineResult result) {
  runner.finish_line(line, std::move(result), [line, batch](const Status& status) {
    if (status.ok() || status.code() == Code::kNotFound) return;
    log_warning("batch {}, line {}: {}", batch, line.line, status.message());
  });
}

// The answer of a line.
class LineSink final : public AnswerSink {
 public:
  LineSink(std::shared_ptr<BatchRunner> runner, const BatchLine& line)
      : runner_(std::move(runner)), id_(line.id), batch_(line.batch) {}

  bool is_background() const override { return true; }
  void add_header(const http::Header& header) override { headers_[header.name] = header.value; }
  void send(const std::string& id, std::string body) override {
    std::string headers = headers_.is_null() ? "" : headers_.dump();
    store_result(*runner_, id_, batch_, {200, id, std::move(body), std::move(headers)});
  }
  bool fail(const std::string& id, const api::Error& error, std::string_view) override {
    if (may_pass(error)) {
      runner_->return_line(id_, rest_us(error));
    } else {
      store_result(*runner_, id_, batch_,
                   {error.status, id, api::error_body(api::Dialect::kOpenAi, error)});
    }
    return false;
  }
  // Lines ask for no stream, and are cancelled by the executor.
  void on_hangup(std::function<void()>) override {}
  void start(http::StreamHead, std::function<void()>) override {}
  http::WriteResult write(std::string_view) override { return http::WriteResult::kGone; }
  void finish() override {}

 private:
  const std::shared_ptr<BatchRunner> runner_;  // which may have been stopped
  const LineId id_;
  const std::string batch_;
  json::Value headers_;  // that the answer would have had
};

// Lines are many, and nobody waits to continue them: they are kept where they ask for it.
api::Parsed<api::ChatRequest> read_response(ServerContext& context, const json::Value& body,
                                            Call& call) {
  api::ResponsesTerms terms{.can_keep = keeps_responses(context), .keeps_by_default = false};
  auto previous = api::read_previous_response(body, terms.can_keep);
  if (!previous.ok()) return previous.error();
  if (!previous->empty()) {
    const std::string& key = call.principal->key_id;
    auto promise = std::make_shared<std::promise<api::Parsed<Recalled>>>();
    auto answer = promise->get_future();
    recall(context, *previous, {key}, key, kPreviousResponse,
           [promise](api::Parsed<Recalled> recalled) { promise->set_value(std::move(recalled)); });
    auto recalled = answer.get();
    if (!recalled.ok()) return recalled.error();
    call.request.memory = std::move(recalled->memory);
    terms.before = std::move(*recalled).lists();
  }
  return api::read_responses_request(body, terms);
}

}  // namespace

BatchExecutor::BatchExecutor(ServerContext& context, size_t max_running)
    : context_(context),
      max_running_(max_running),
      runner_(
          std::make_shared<BatchRunner>(context.store, context.clock, [&models = context.models] {
            std::vector<std::string> ids;
            for (const ModelStatus& model : models.models()) ids.push_back(model.config.id);
            return ids;
          })) {}

void BatchExecutor::start() {
  thread_ = std::thread([this] {
    pthread_setname_np(pthread_self(), "batches");
    run();
  });
}

void BatchExecutor::wake() {
  runner_->wake();
}

void BatchExecutor::stop() {
  runner_->close();
  if (thread_.joinable()) thread_.join();
  runner_->stop();
}

void BatchExecutor::run() {
  const PatientScope patient;  // lines must not get lost between the store and the engine
  while (runner_->wait()) {
    const size_t running = runner_->running();
    const bool takes_work = !context_.draining && running < max_running_;
    const auto lines = runner_->next_lines(takes_work ? max_running_ - running : 0);
    if (!lines.ok()) {
      log_error("batches cannot go on for now: {}", lines.message());
      continue;
    }
    // They would keep a server that drains from its end, and the next one runs them.
    if (context_.draining) {
      runner_->forget_running();
      continue;
    }
    for (const BatchLine& line : *lines) begin(line);
  }
}

void BatchExecutor::begin(const BatchLine& line) {
  const auto refuse = [&](LineResult result) {
    store_result(*runner_, line.id, line.batch, std::move(result));
  };
  PrincipalPtr owner = context_.keys.find(line.owner);
  if (owner == nullptr) return refuse(failed_line(api::unauthorized()));
  Call call{.route = match_route("POST", "/v1/batches").route,
            .id = {},
            .principal = std::move(owner),
            .priority = Priority::LOW};
  call.request.request_id = fmt::format("{}-{}", line.batch, line.id.line);
  const ParsedLine parsed = parse_batch_line(line.text, line.endpoint);
  if (!parsed.problems.empty()) return refuse(refusal(parsed.problems.front()));
  if (auto problem = find_stream(parsed.body)) return refuse(failed_line(*problem));
  const auto answer = [&](api::AnswerKind kind, auto request) {
    if (!request.ok()) return refuse(failed_line(request.error()));
    const auto job =
        std::make_shared<AnswerJob>(context_, std::move(call), kind, std::move(*request),
                                    std::make_unique<LineSink>(runner_, line));
    job->begin();
    runner_->set_request(line.id, job);
  };
  if (line.endpoint == kBatchChatUrl) {
    answer(api::AnswerKind::kChat, api::read_chat_request(parsed.body));
  } else if (line.endpoint == kBatchResponsesUrl) {
    auto request = read_response(context_, parsed.body, call);
    if (!request.ok() && may_pass(request.error())) {
      return runner_->return_line(line.id, rest_us(request.error()));
    }
    answer(api::AnswerKind::kResponse, std::move(request));
  } else if (line.endpoint == kBatchEmbeddingsUrl) {
    auto request = api::read_embedding_request(parsed.body);
    if (!request.ok()) return refuse(failed_line(request.error()));
    const auto job =
        std::make_shared<VectorJob>(context_, std::move(call), make_work(std::move(*request)),
                                    std::make_unique<LineSink>(runner_, line));
    job->begin();
    runner_->set_request(line.id, job);
  } else {
    answer(api::AnswerKind::kCompletion, api::read_completion_request(parsed.body));
  }
}

}  // namespace skein
