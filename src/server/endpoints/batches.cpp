// /v1/batches in OpenAI's JSON. What runs them is the BatchExecutor.
#include <utility>

#include "server/batch/batch_request.h"
#include "server/endpoints/endpoints.h"
#include "server/endpoints/file_upload.h"
#include "server/endpoints/reply.h"
#include "server/json/append.h"

namespace skein {
namespace {

constexpr uint32_t kDefaultListed = 20;
constexpr uint32_t kMaxListed = 100;
constexpr int64_t kSecondsPerHour = 3600;
constexpr uint64_t kBatchRetryS = 60;

void append_name(std::string& out, std::string_view name) {
  out.append(",\"").append(name).append("\":");
}

void append_time(std::string& out, std::string_view name, int64_t at_s) {
  append_name(out, name);
  if (at_s == 0) {
    out.append("null");
  } else {
    json::append_int(out, at_s);
  }
}

void append_id(std::string& out, std::string_view name, std::string_view id) {
  append_name(out, name);
  append_id_or_null(out, id);
}

void append_errors(std::string& out, const std::vector<BatchError>& errors) {
  append_name(out, "errors");
  if (errors.empty()) {
    out.append("null");
    return;
  }
  out.append(R"({"object":"list","data":[)");
  for (size_t i = 0; i < errors.size(); ++i) {
    if (i > 0) out.push_back(',');
    out.append(R"({"code":)");
    json::append_string(out, errors[i].code);
    append_name(out, "message");
    json::append_string(out, errors[i].message);
    out.append(R"(,"param":null)");
    append_time(out, "line", errors[i].line);
    out.push_back('}');
  }
  out.append("]}");
}

void append_counts(std::string& out, const BatchRecord& batch) {
  out.append(R"(,"request_counts":{"total":)");
  json::append_int(out, static_cast<int64_t>(batch.total_lines));
  append_name(out, "completed");
  json::append_int(out, static_cast<int64_t>(batch.completed_lines));
  append_name(out, "failed");
  json::append_int(out, static_cast<int64_t>(batch.failed_lines));
  out.push_back('}');
}

std::string batch_answer(const BatchRecord& batch) {
  std::string out = R"({"id":)";
  json::append_string(out, batch.id);
  out.append(R"(,"object":"batch")");
  append_id(out, "endpoint", batch.endpoint);
  append_errors(out, batch.errors);
  append_id(out, "input_file_id", batch.input_file);
  const int64_t created_s = batch.at_s(BatchStatus::kValidating);
  append_id(out, "completion_window",
            fmt::format("{}h", (batch.expires_at_s - created_s) / kSecondsPerHour));
  append_id(out, "status", name_of(batch.status));
  append_id(out, "output_file_id", batch.output_file);
  append_id(out, "error_file_id", batch.error_file);
  append_time(out, "created_at", created_s);
  append_time(out, "in_progress_at", batch.at_s(BatchStatus::kInProgress));
  append_time(out, "expires_at", batch.expires_at_s);
  append_time(out, "finalizing_at", batch.at_s(BatchStatus::kFinalizing));
  append_time(out, "completed_at", batch.at_s(BatchStatus::kCompleted));
  append_time(out, "failed_at", batch.at_s(BatchStatus::kFailed));
  append_time(out, "expired_at", batch.at_s(BatchStatus::kExpired));
  append_time(out, "cancelling_at", batch.at_s(BatchStatus::kCancelling));
  append_time(out, "cancelled_at", batch.at_s(BatchStatus::kCancelled));
  append_counts(out, batch);
  append_name(out, "metadata");
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
      return store_error(status);
  }
}

void create(ServerContext& context, const Call& call, const http::Responder& responder) {
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

void list_batches(ServerContext& context, const Call& call, const http::Responder& responder) {
  auto options = list_options(call.request.head, kDefaultListed, kMaxListed);
  if (!options.ok()) return send_error(call, responder, options.error());
  context.store.batches().list(call.principal->scope(), *options,
                               [&context, call, responder](Result<Page<BatchRecord>> page) {
                                 send_page(context, call, responder, std::move(page), batch_answer);
                               });
}

}  // namespace

void bind_batches(Router& router, ServerContext& context) {
  router.bind(Endpoint::kBatchCreate,
              [&context](const Call& call, const http::Responder& responder) {
                create(context, call, responder);
              });
  router.bind(Endpoint::kBatches, [&context](const Call& call, const http::Responder& responder) {
    list_batches(context, call, responder);
  });
  router.bind(Endpoint::kBatch, [&context](const Call& call, const http::Responder& responder) {
    context.store.batches().get(call.id, call.principal->scope(),
                                answer_with_batch(call, responder));
  });
  router.bind(Endpoint::kBatchCancel,
              [&context](const Call& call, const http::Responder& responder) {
                context.store.batches().cancel(call.id, call.principal->scope(),
                                               answer_with_batch(call, responder));
              });
}

}  // namespace skein
