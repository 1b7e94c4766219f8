// Errors as a client is told them: fixed texts, in the words of its API.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <variant>

#include "base/check.h"
#include "base/status.h"

namespace skein::api {

// The API whose bodies a route speaks.
enum class Dialect : uint8_t { kOpenAi, kAnthropic };

struct Error {
  int status = 400;
  std::string message;
  std::string param = {};  // the field, as in messages[2].content; empty: none
  std::string code = {};   // empty: none
  std::optional<uint64_t> retry_after_s = {};
  struct Used {
    uint64_t prompt_tokens = 0;
    uint64_t completion_tokens = 0;
  };
  std::optional<Used> used = {};  // by an answer that ends with this
  bool is_final = false;  // whatever the status says, a line of a batch need not be tried again
};

// A value, or what the client is told instead.
template <class T>
class [[nodiscard]] Parsed {
 public:
  Parsed(T value) : state_(std::in_place_index<0>, std::move(value)) {}      // NOLINT: implicit
  Parsed(Error error) : state_(std::in_place_index<1>, std::move(error)) {}  // NOLINT: by design

  bool ok() const { return state_.index() == 0; }
  const Error& error() const { return std::get<1>(state_); }
  T& value() {
    SKEIN_CHECK(ok(), "value of a failed parse: {}", error().message);
    return std::get<0>(state_);
  }
  T* operator->() { return &value(); }
  T& operator*() { return value(); }

 private:
  std::variant<T, Error> state_;
};

// The JSON body: {"error":{...}}, or Anthropic's {"type":"error","error":{...}}.
std::string error_body(Dialect dialect, const Error& error);

// The inner object alone, {"message":...,"type":...,"param":...,"code":...}: for an error frame of
// a stream and for the lines of a batch's error file.
std::string error_object(Dialect dialect, const Error& error);

// The type that goes with a status: "invalid_request_error" for 400, ...
std::string_view error_type(Dialect dialect, int status);

// The fixed ones.
Error invalid_json(size_t offset, std::string_view reason);
Error invalid_field(std::string param, std::string message);
Error context_length_exceeded(uint64_t prompt_tokens, uint64_t max_tokens, uint64_t limit);
Error model_not_found(std::string_view model);
Error model_unavailable(uint64_t retry_after_s);  // there is no room for it now
// A load has failed. kUnavailable may pass; anything else will not by waiting.
Error model_load_failed(std::string_view model, const Status& status);
Error unauthorized();  // 401; the answer needs WWW-Authenticate
Error forbidden(std::string_view message);
Error not_found();
Error method_not_allowed();
Error unsupported_media_type(std::string_view expected);
Error not_supported(std::string_view what, std::string param = {});
Error invalid_tool(std::string param, std::string message);
Error tool_not_found(std::string param, std::string_view name);
Error deadline_exceeded();
Error queue_full(uint64_t retry_after_s);
Error share_full(std::string_view why, uint64_t retry_after_s);  // `why` has both numbers
Error rate_limited(uint64_t retry_after_s);
// More than the key's whole minute: there is no time at which it would be admitted.
Error rate_limit_too_small(uint64_t tokens, uint64_t tokens_per_minute);
// The answer has used what was left of the key's minute.
Error rate_limit_used_up(Error::Used used);
Error draining(uint64_t retry_after_s);
Error engine_hung(uint64_t retry_after_s);  // a step does not come back; not the client's fault
// More than a key may hold: of an answer as far as it has come, or of vectors that were asked for.
enum class TooLarge : uint8_t { kAnswer, kVectors };
Error answer_too_large(TooLarge what, uint64_t bytes, uint64_t limit_bytes);
Error overloaded(uint64_t retry_after_s);  // no room for it in a queue or in memory
Error storage_full();                      // 507
// The error for what the store could not do, in words about storage: those of from_status() about a
// server that is not ready would be wrong here.
Error storage_failed(const Status& status);
Error internal_failure();

// Turns a Status from below into an error. Only messages about the caller's own input are passed
// on: others could hold paths or addresses, so they become a fixed text and belong in the log.
Error from_status(const Status& status);

}  // namespace skein::api
