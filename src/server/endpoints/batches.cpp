// /v1/batches in OpenAI's JSON. What runs them is the BatchExecutor.
#include <utility>

#include "server/batch/batch_request.h"
#include "server/endpoints/file_upload.h"
#include "server/endpoints/reply.h"
#include "server/json.h"

namespace skein::endpoints {
namespace {

constexpr uint32_t kDefaultListed = 20;
constexpr uint32_t kMaxListed = 100;
constexpr int64_t kSecondsPerHour = 3600;
constexpr uint64_t kBatchRetryS = 60;

using json::append_member;
using json::append_member_or_null;

void append_errors(std::string& out, const std::vector<BatchError>& errors) {
  json::append_name(out, "errors");
  if (errors.empty()) {
    out.append("null");
    return;
  }
  out.append(R"({"object":"list","data":)");
  json::append_list(out, errors, [&](const BatchError& error) {
    out.push_back('{');
    append_member(out, "code", error.code);
    append_member(out, "message", error.message);
    out.append(R"(,"param":null)");
    append_member_or_null(out, "line", error.line);
    out.push_back('}');
  });
  out.push_back('}');
}

std::string batch_answer(const BatchRecord& batch) {
  const auto append_time = [&](std::string& out, std::string_view name, BatchStatus status) {
    append_member_or_null(out, name, batch.at_s(status));
  };
  std::string out = "{";
  append_member(out, "id", batch.id);
  append_member(out, "object", "batch");
  append_member_or_null(out, "endpoint", batch.endpoint);
  append_errors(out, batch.errors);
  append_member_or_null(out, "input_file_id", batch.input_file);
  const int64_t window_s = batch.expires_at_s - batch.at_s(BatchStatus::kValidating);
  append_member(out, "completion_window", fmt::format("{}h", window_s / kSecondsPerHour));
  append_member(out, "status", name_of(batch.status));
  append_member_or_null(out, "output_file_id", batch.output_file);
  append_member_or_null(out, "error_file_id", batch.error_file);
  append_time(out, "created_at", BatchStatus::kValidating);
  append_time(out, "in_progress_at", BatchStatus::kInProgress);
  append_member_or_null(out, "expires_at", batch.expires_at_s);
  append_time(out, "finalizing_at", BatchStatus::kFinalizing);
  append_time(out, "completed_at", BatchStatus::kCompleted);
  append_time(out, "failed_at", BatchStatus::kFailed);
  append_time(out, "expired_at", BatchStatus::kExpired);
  append_time(out, "cancelling_at", BatchStatus::kCancelling);
  append_time(out, "cancelled_at", BatchStatus::kCancelled);
  json::append_name(out, "request_counts");
  out.push_back('{');
  append_member(out, "total", batch.total_lines);
  append_member(out, "completed", batch.completed_lines);
  append_member(out, "failed", batch.failed_lines);
  out.push_back('}');
  json::append_name(out, "metadata");
  out.append(batch.metadata.empty() ? "null" : batch.metadata);
  return out.append("}");
}

Done<BatchRecord> answer_with_batch(const Call& call, const http::Responder& responder) {
  return [call, responder](const Result<BatchRecord>& batch) {
    if (!batch.ok()) return send_store_error(call, responder, batch.status());
    send_json(responder, batch_answer(*batch));
  };
}

api::Error creation_error(const Status& status) {
  switch (status.code()) {
    case Code::kNotFound:
      return {.status = 404,
              .message = "There is no file with this id.",
              .param = "input_file_id",
              .code = "not_found"};
    case Code::kInvalidArgument:
      return api::invalid_field("input_file_id", status.message());
    case Code::kOutOfRange:
      return {.status = 429,
              .message = status.message(),
              .code = "too_many_batches",
              .retry_after_s = kBatchRetryS};
    default:
      return api::storage_failed(status);
  }
}

}  // namespace

void create_batch(ServerContext& context, Call& call, const http::Responder& responder) {
  auto batch = parse_batch_request(call.request.body);
  if (!batch.ok()) return send_error(call, responder, batch.error());
  // Its results will need room.
  const Status room = context.store.file_budget().check(call.principal->key_id);
  if (!room.ok()) return send_error(call, responder, room_error(room));
  batch->owner = call.principal->key_id;
  context.store.batches().create(
      std::move(*batch), [call, responder](const Result<BatchRecord>& created) {
        if (!created.ok()) {
          return send_error(call, responder, creation_error(created.status()));
        }
        send_json(responder, batch_answer(*created));
      });
}

void list_batches(ServerContext& context, Call& call, const http::Responder& responder) {
  auto options = list_options(call.request.head, kDefaultListed, kMaxListed);
  if (!options.ok()) return send_error(call, responder, options.error());
  context.store.batches().list(call.principal->scope(), *options,
                               [&context, call, responder](Result<Page<BatchRecord>> page) {
                                 send_page(context, call, responder, std::move(page), batch_answer);
                               });
}

void get_batch(ServerContext& context, Call& call, const http::Responder& responder) {
  context.store.batches().get(call.id, call.principal->scope(), answer_with_batch(call, responder));
}

void cancel_batch(ServerContext& context, Call& call, const http::Responder& responder) {
  context.store.batches().cancel(call.id, call.principal->scope(),
                                 answer_with_batch(call, responder));
}

}  // namespace skein::endpoints
