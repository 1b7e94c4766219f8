#include "server/api/errors.h"

#include "server/json.h"

namespace skein::api {

std::string_view error_type(Dialect dialect, int status) {
  const bool openai = dialect == Dialect::kOpenAi;
  switch (status) {
    case 401:
      return "authentication_error";
    case 403:
      return "permission_error";
    case 404:
      return openai ? "invalid_request_error" : "not_found_error";
    case 413:
      return openai ? "invalid_request_error" : "request_too_large";
    case 429:
      return "rate_limit_error";
    case 503:
    case 529:
      return openai ? "server_error" : "overloaded_error";
    default:
      break;
  }
  if (status >= 500) return openai ? "server_error" : "api_error";
  return "invalid_request_error";
}

namespace {

// A model whose files were bad is hardly mended sooner.
constexpr uint64_t kRetryLoadS = 60;

void append_used(std::string& out, Dialect dialect, const Error::Used& used) {
  const bool openai = dialect == Dialect::kOpenAi;
  json::append_name(out, "usage");
  out.push_back('{');
  json::append_member(out, openai ? "prompt_tokens" : "input_tokens", used.prompt_tokens);
  json::append_member(out, openai ? "completion_tokens" : "output_tokens", used.completion_tokens);
  if (openai) {
    json::append_member(out, "total_tokens", used.prompt_tokens + used.completion_tokens);
  }
  out.push_back('}');
}

}  // namespace

std::string error_object(Dialect dialect, const Error& error) {
  std::string out = "{";
  if (dialect == Dialect::kAnthropic) {
    json::append_member(out, "type", error_type(dialect, error.status));
    // The form has no place for a code. This one alone is what a page's author has to look for.
    const char* code = error.code == "forbidden_origin" ? " Code: forbidden_origin" : "";
    json::append_member(
        out, "message",
        fmt::format("{}{}{}{}", error.param, error.param.empty() ? "" : ": ", error.message, code));
  } else {
    json::append_member(out, "message", error.message);
    json::append_member(out, "type", error_type(dialect, error.status));
    json::append_member_or_null(out, "param", error.param);
    json::append_member_or_null(out, "code", error.code);
  }
  if (error.used) append_used(out, dialect, *error.used);
  return out.append("}");
}

std::string error_body(Dialect dialect, const Error& error) {
  std::string out =
      dialect == Dialect::kAnthropic ? "{\"type\":\"error\",\"error\":" : "{\"error\":";
  return out.append(error_object(dialect, error)).append("}");
}

Error invalid_json(size_t offset, std::string_view reason) {
  return {.status = 400,
          .message = fmt::format("The body is not valid JSON: {} at byte {}.", reason, offset),
          .code = "invalid_json"};
}

Error invalid_field(std::string param, std::string message) {
  return {.status = 400, .message = std::move(message), .param = std::move(param)};
}

Error context_length_exceeded(uint64_t prompt_tokens, uint64_t max_tokens, uint64_t limit) {
  return {.status = 400,
          .message = fmt::format("The prompt has {} tokens and up to {} are to be generated; the "
                                 "limit is {} in all.",
                                 prompt_tokens, max_tokens, limit),
          .param = "messages",
          .code = "context_length_exceeded"};
}

Error model_not_found(std::string_view model) {
  return {.status = 404,
          .message = fmt::format("The model '{}' does not exist.", model),
          .param = "model",
          .code = "model_not_found"};
}

Error unauthorized() {
  return {.status = 401, .message = "A valid API key is needed.", .code = "invalid_api_key"};
}

Error forbidden(std::string_view message) {
  return {.status = 403, .message = std::string(message), .code = "permission_denied"};
}

Error not_found() {
  return {.status = 404, .message = "There is nothing at this URL.", .code = "not_found"};
}

Error method_not_allowed() {
  return {.status = 405,
          .message = "This URL does not take that method.",
          .code = "method_not_allowed"};
}

Error unsupported_media_type(std::string_view expected) {
  return {.status = 415,
          .message = fmt::format("The Content-Type must be {}.", expected),
          .code = "unsupported_media_type"};
}

Error not_supported(std::string_view what, std::string param) {
  return {.status = 501,
          .message = fmt::format("{} is not supported.", what),
          .param = std::move(param),
          .code = "not_supported"};
}

Error invalid_tool(std::string param, std::string message) {
  return {.status = 400,
          .message = std::move(message),
          .param = std::move(param),
          .code = "invalid_tool"};
}

Error tool_not_found(std::string param, std::string_view name) {
  return {.status = 400,
          .message = fmt::format("No tool is called {}.", name),
          .param = std::move(param),
          .code = "tool_not_found"};
}

Error deadline_exceeded() {
  return {
      .status = 408, .message = "The request's deadline has passed.", .code = "deadline_exceeded"};
}

Error queue_full(uint64_t retry_after_s) {
  return {.status = 429,
          .message = "The queue is full; try again later.",
          .code = "queue_full",
          .retry_after_s = retry_after_s};
}

Error share_full(std::string_view why, uint64_t retry_after_s) {
  return {.status = 429,
          .message = fmt::format("Other keys ask, too: {}; try again later.", why),
          .code = "tenant_share",
          .retry_after_s = retry_after_s};
}

Error rate_limited(uint64_t retry_after_s) {
  return {.status = 429,
          .message = "This key's rate limit is used up; try again later.",
          .code = "rate_limit_exceeded",
          .retry_after_s = retry_after_s};
}

Error rate_limit_too_small(uint64_t tokens, uint64_t tokens_per_minute) {
  return {.status = 429,
          .message = fmt::format("The prompt and its answers may need {} tokens; this key has {} a "
                                 "minute. Ask for fewer with max_tokens or n.",
                                 tokens, tokens_per_minute),
          .code = "rate_limit_exceeded"};
}

Error rate_limit_used_up(Error::Used used) {
  return {
      .status = 429,
      .message = fmt::format("This key's tokens of the minute are used up: {} by the prompt and "
                             "{} by the answer. Ask for fewer with max_tokens.",
                             used.prompt_tokens, used.completion_tokens),
      .code = "rate_limit_exceeded",
      .used = used};
}

Error model_unavailable(uint64_t retry_after_s) {
  return {.status = 503,
          .message = "There is no room for the model now; try again later.",
          .code = "model_unavailable",
          .retry_after_s = retry_after_s};
}

Error model_load_failed(std::string_view model, const Status& status) {
  if (status.code() == Code::kUnavailable) return model_unavailable(1);
  return {
      .status = 503,
      .message = fmt::format("The model '{}' cannot be loaded; the server's log says why.", model),
      .param = "model",
      .code = "model_load_failed",
      .retry_after_s = kRetryLoadS,
      .is_final = true};
}

Error draining(uint64_t retry_after_s) {
  return {.status = 503,
          .message = "The server is shutting down or not ready; try again later.",
          .code = "unavailable",
          .retry_after_s = retry_after_s};
}

Error engine_hung(uint64_t retry_after_s) {
  return {.status = 503,
          .message = "The engine hangs in a step and has given this request up; try again later.",
          .code = "engine_hung",
          .retry_after_s = retry_after_s};
}

Error answer_too_large(TooLarge what, uint64_t bytes, uint64_t limit_bytes) {
  const bool vectors = what == TooLarge::kVectors;
  return {.status = 400,
          .message =
              fmt::format("{} {} bytes{}; a key may hold {}. {}",
                          vectors ? "The vectors of this request take" : "The answer holds", bytes,
                          vectors ? "" : " and is not complete", limit_bytes,
                          vectors ? "Send fewer inputs, or ask for fewer dimensions or for base64."
                                  : "Ask for fewer choices, tokens or logprobs, or for a stream."),
          .code = "answer_too_large"};
}

Error overloaded(uint64_t retry_after_s) {
  return {.status = 503,
          .message = "The server has as much work as it can hold; try again later.",
          .code = "overloaded",
          .retry_after_s = retry_after_s};
}

Error storage_full() {
  return {
      .status = 507,
      .message =
          "The server's disk is full; delete files that are no longer needed, or try again later.",
      .code = "storage_full"};
}

Error storage_failed(const Status& status) {
  if (status.code() == Code::kResourceExhausted) return storage_full();
  if (status.code() != Code::kUnavailable) return from_status(status);
  return {.status = 503,
          .message = "The server's storage does not answer; try again later.",
          .code = "storage_unavailable",
          .retry_after_s = 1};
}

Error internal_failure() {
  return {.status = 500, .message = "The server failed.", .code = "internal_error"};
}

Error from_status(const Status& status) {
  switch (status.code()) {
    case Code::kInvalidArgument:
      return {.status = 400, .message = status.message()};
    case Code::kOutOfRange:
      return {.status = 400, .message = status.message(), .code = "context_length_exceeded"};
    case Code::kNotFound:
      return not_found();
    case Code::kAlreadyExists:
      return {.status = 409, .message = "It exists already.", .code = "already_exists"};
    case Code::kResourceExhausted:
      return queue_full(1);
    case Code::kUnavailable:
      return draining(1);
    case Code::kDeadlineExceeded:
      return deadline_exceeded();
    case Code::kUnimplemented:
      return not_supported("What was asked for");
    case Code::kOk:
    case Code::kDataLoss:
    case Code::kInternal:
      break;
  }
  return internal_failure();
}

}  // namespace skein::api
