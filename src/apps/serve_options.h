// The options of `skein serve`: one table (serve_options.def), from which flags, variables and TOML
// keys are made.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "base/status.h"

namespace skein::apps {

using Words = std::vector<std::string>;

// A size that people may write with a unit: 8GiB, 512MiB, 1000.
struct Bytes {
  uint64_t value = 0;
};
Result<Bytes> parse_bytes(std::string_view text);
std::string to_text(Bytes bytes);  // in the largest unit that loses nothing

// Sanitizers start other programs and look into their own process when they report.
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
inline constexpr bool kSandboxByDefault = false;
#else
inline constexpr bool kSandboxByDefault = true;
#endif

struct ServeOptions {
#define SKEIN_OPTION(group, type, name, fallback, check, target, help) type name = fallback;
#include "apps/serve_options.def"
#undef SKEIN_OPTION
};

// The limits of a value, beside its type.
struct OptionCheck {
  double low = 0;  // of numbers, both included
  double high = 0;
  std::string_view words = {};  // of text: "a|b"; empty: anything
};
constexpr OptionCheck anything() {
  return {};
}
constexpr OptionCheck between(double low, double high) {
  return {low, high};
}
constexpr OptionCheck one_of(std::string_view words) {
  return {0, 0, words};
}

struct ServeOption {
  using Member =
      std::variant<bool ServeOptions::*, uint64_t ServeOptions::*, double ServeOptions::*,
                   std::string ServeOptions::*, Words ServeOptions::*, Bytes ServeOptions::*>;
  std::string_view group;
  std::string_view name;
  Member member;
  OptionCheck check;
  std::string_view help;

  bool is_flag() const { return std::holds_alternative<bool ServeOptions::*>(member); }
  bool is_list() const { return std::holds_alternative<Words ServeOptions::*>(member); }
  std::string flag() const;      // --max-queue
  std::string variable() const;  // SKEIN_MAX_QUEUE
  std::string type_name() const;

  // From words of a command line or a variable. Errors say what the value must be, not whose it is.
  Status set(ServeOptions& options, const Words& words) const;
  // The value as TOML.
  std::string value(const ServeOptions& options) const;
};

std::span<const ServeOption> serve_options();

// Whether the value, as it has its type, passes the option's check.
Status check_number(const ServeOption& option, double value);
Status check_text(const ServeOption& option, const std::string& value);

// "text" as TOML writes it.
std::string toml_string(std::string_view text);

}  // namespace skein::apps
