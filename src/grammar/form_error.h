// Why a schema, a regular expression or a grammar is not taken: the code that an API answers with,
// what is wrong in words, and where.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <variant>

#include "base/check.h"

namespace skein::grammar {

enum class FormCode : uint8_t {
  kInvalidSchema,
  kInvalidRegex,
  kInvalidGrammar,
  kUnsupportedSchema,
  kUnsatisfiableSchema,
  kTooComplex,
};

constexpr std::string_view form_code_name(FormCode code) {
  switch (code) {
    case FormCode::kInvalidSchema:
      return "invalid_schema";
    case FormCode::kInvalidRegex:
      return "invalid_regex";
    case FormCode::kInvalidGrammar:
      return "invalid_grammar";
    case FormCode::kUnsupportedSchema:
      return "unsupported_schema";
    case FormCode::kUnsatisfiableSchema:
      return "unsatisfiable_schema";
    case FormCode::kTooComplex:
      return "schema_too_complex";
  }
  return "";
}

struct FormError {
  FormCode code;
  std::string message;
  std::string where;  // a JSON pointer, or empty
};

// A value, or why there is none.
template <class T>
class [[nodiscard]] FormResult {
 public:
  FormResult(T value) : state_(std::in_place_index<0>, std::move(value)) {}  // NOLINT: implicit
  FormResult(FormError error) : state_(std::in_place_index<1>, std::move(error)) {}  // NOLINT

  bool ok() const { return state_.index() == 0; }
  const FormError& error() const { return std::get<1>(state_); }
  T& value() & { return check(), std::get<0>(state_); }
  T&& value() && { return check(), std::get<0>(std::move(state_)); }
  T* operator->() { return &value(); }
  T& operator*() & { return value(); }

 private:
  void check() const { SKEIN_CHECK(ok(), "value of a refused form: {}", error().message); }
  std::variant<T, FormError> state_;
};

}  // namespace skein::grammar
