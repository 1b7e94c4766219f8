// Status and Result: how everything that user input can cause is reported.
//
//   Result<Model> load(path);
//   SKEIN_ASSIGN(Model model, load(path));   // returns the Status to the caller on failure
//   SKEIN_TRY(model.check());
//
// A message names the thing and both numbers ("prompt has 900 tokens, the pool holds 128").
#pragma once

#include <cstdint>
#include <fmt/core.h>
#include <string>
#include <string_view>
#include <utility>
#include <variant>

#include "base/check.h"

namespace skein {

enum class Code : uint8_t {
  kOk,
  kInvalidArgument,    // malformed whatever the state of the system
  kNotFound,           // no such id, file or key
  kAlreadyExists,      // the id is taken
  kOutOfRange,         // can never fit: larger than a limit of this model or pool
  kResourceExhausted,  // does not fit now: queue full, memory short
  kUnavailable,        // draining or still loading
  kDeadlineExceeded,   // the caller's time ran out
  kUnimplemented,      // this model or build cannot do it
  kDataLoss,           // bytes that are not what they claim to be
  kInternal,           // our fault
};

std::string_view code_name(Code code);

class [[nodiscard]] Status {
 public:
  Status() = default;  // ok
  Status(Code code, std::string message) : code_(code), message_(std::move(message)) {}

  bool ok() const { return code_ == Code::kOk; }
  Code code() const { return code_; }
  const std::string& message() const { return message_; }

 private:
  Code code_ = Code::kOk;
  std::string message_;
};

inline Status ok_status() {
  return {};
}

#define SKEIN_STATUS_MAKER(name, code)                               \
  template <class... Args>                                           \
  Status name(fmt::format_string<Args...> format, Args&&... args) {  \
    return {code, fmt::format(format, std::forward<Args>(args)...)}; \
  }
SKEIN_STATUS_MAKER(invalid_argument, Code::kInvalidArgument)
SKEIN_STATUS_MAKER(not_found, Code::kNotFound)
SKEIN_STATUS_MAKER(already_exists, Code::kAlreadyExists)
SKEIN_STATUS_MAKER(out_of_range, Code::kOutOfRange)
SKEIN_STATUS_MAKER(resource_exhausted, Code::kResourceExhausted)
SKEIN_STATUS_MAKER(unavailable, Code::kUnavailable)
SKEIN_STATUS_MAKER(deadline_exceeded, Code::kDeadlineExceeded)
SKEIN_STATUS_MAKER(unimplemented, Code::kUnimplemented)
SKEIN_STATUS_MAKER(data_loss, Code::kDataLoss)
SKEIN_STATUS_MAKER(internal_error, Code::kInternal)
#undef SKEIN_STATUS_MAKER

// A value or the Status that says why there is none.
template <class T>
class [[nodiscard]] Result {
 public:
  Result(T value)
      : state_(std::in_place_index<0>, std::move(value)) {}  // NOLINT: implicit by design
  Result(Status status) : state_(std::in_place_index<1>, std::move(status)) {  // NOLINT: likewise
    SKEIN_CHECK(!std::get<1>(state_).ok(), "a Result without a value needs a reason");
  }

  bool ok() const { return state_.index() == 0; }
  Status status() const { return ok() ? Status{} : std::get<1>(state_); }
  const std::string& message() const { return std::get<1>(state_).message(); }

  T& value() & { return check(), std::get<0>(state_); }
  const T& value() const& { return check(), std::get<0>(state_); }
  T&& value() && { return check(), std::get<0>(std::move(state_)); }
  T& operator*() & { return value(); }
  const T& operator*() const& { return value(); }
  T* operator->() { return &value(); }
  const T* operator->() const { return &value(); }

 private:
  void check() const { SKEIN_CHECK(ok(), "value of a failed Result: {}", message()); }
  std::variant<T, Status> state_;
};

}  // namespace skein

#define SKEIN_TRY(expression)                                                                    \
  do {                                                                                           \
    if (::skein::Status skein_status_ = (expression); !skein_status_.ok()) return skein_status_; \
  } while (false)

#define SKEIN_CONCAT_INNER(a, b) a##b
#define SKEIN_CONCAT(a, b) SKEIN_CONCAT_INNER(a, b)
#define SKEIN_ASSIGN(target, expression) \
  SKEIN_ASSIGN_IMPL(SKEIN_CONCAT(skein_result_, __LINE__), target, expression)
#define SKEIN_ASSIGN_IMPL(result, target, expression) \
  auto result = (expression);                         \
  if (!result.ok()) return result.status();           \
  target = std::move(result).value()
