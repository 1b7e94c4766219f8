#include "apps/serve_options.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <cmath>
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <utility>

namespace skein::apps {
namespace {

constexpr ServeOption kOptions[] = {
#define SKEIN_OPTION(group, type, name, fallback, check, target, help) \
  {group, #name, &ServeOptions::name, check, help},
#include "apps/serve_options.def"
#undef SKEIN_OPTION
};

constexpr std::pair<std::string_view, uint32_t> kUnits[] = {
    {"TiB", 40}, {"GiB", 30}, {"MiB", 20}, {"KiB", 10}, {"", 0}};

template <class T>
Result<T> parse_number(std::string_view text) {
  T value{};
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || end != text.data() + text.size() || text.empty()) {
    return invalid_argument("'{}' is not a {}number", text, std::is_integral_v<T> ? "whole " : "");
  }
  return value;
}

Result<bool> parse_bool(std::string_view text) {
  for (const std::string_view yes : {"true", "1", "yes", "on"}) {
    if (text == yes) return true;
  }
  for (const std::string_view no : {"false", "0", "no", "off"}) {
    if (text == no) return false;
  }
  return invalid_argument("'{}' is neither true nor false", text);
}

// One overload per type of option.
Status assign(const ServeOption&, bool& to, std::string_view text) {
  SKEIN_ASSIGN(to, parse_bool(text));
  return {};
}
Status assign(const ServeOption& option, uint64_t& to, std::string_view text) {
  SKEIN_ASSIGN(const uint64_t value, parse_number<uint64_t>(text));
  SKEIN_TRY(check_number(option, static_cast<double>(value)));
  to = value;
  return {};
}
Status assign(const ServeOption& option, double& to, std::string_view text) {
  SKEIN_ASSIGN(const double value, parse_number<double>(text));
  SKEIN_TRY(check_number(option, value));
  to = value;
  return {};
}
Status assign(const ServeOption& option, std::string& to, std::string_view text) {
  SKEIN_TRY(check_text(option, std::string(text)));
  to = text;
  return {};
}
Status assign(const ServeOption&, Bytes& to, std::string_view text) {
  SKEIN_ASSIGN(to, parse_bytes(text));
  return {};
}

std::string show(bool value) {
  return value ? "true" : "false";
}
std::string show(uint64_t value) {
  return std::to_string(value);
}
std::string show(double value) {
  return fmt::format("{}", value);  // the shortest that reads back the same, with a point
}
std::string show(const std::string& value) {
  return toml_string(value);
}
std::string show(Bytes value) {
  return toml_string(to_text(value));
}
std::string show(const Words& value) {
  Words quoted;
  for (const std::string& word : value) quoted.push_back(toml_string(word));
  return fmt::format("[{}]", fmt::join(quoted, ", "));
}

std::string with_dashes(std::string_view name) {
  std::string out(name);
  std::replace(out.begin(), out.end(), '_', '-');
  return out;
}

}  // namespace

std::span<const ServeOption> serve_options() {
  return kOptions;
}

Result<Bytes> parse_bytes(std::string_view text) {
  for (const auto& [unit, shift] : kUnits) {
    if (!text.ends_with(unit)) continue;
    const auto number = parse_number<uint64_t>(text.substr(0, text.size() - unit.size()));
    if (!number.ok() || *number > (UINT64_MAX >> shift)) break;
    return Bytes{*number << shift};
  }
  return invalid_argument("'{}' is not a size; write it as 8GiB, 512MiB, 64KiB or in bytes", text);
}

std::string to_text(Bytes bytes) {
  for (const auto& [unit, shift] : kUnits) {
    const uint64_t whole = bytes.value >> shift;
    if (whole > 0 && whole << shift == bytes.value) return fmt::format("{}{}", whole, unit);
  }
  return "0";
}

std::string toml_string(std::string_view text) {
  std::string out = "\"";
  for (const char c : text) {
    const auto byte = static_cast<unsigned char>(c);
    if (c == '"' || c == '\\') {
      out.append({'\\', c});
    } else if (byte < 0x20 || byte == 0x7f) {
      out.append(fmt::format("\\u{:04X}", byte));
    } else {
      out.push_back(c);
    }
  }
  return out.append("\"");
}

Status check_number(const ServeOption& option, double value) {
  // Also refuses NaN.
  if (value >= option.check.low && value <= option.check.high) return {};
  return invalid_argument("{} is not between {} and {}", value, option.check.low,
                          option.check.high);
}

Status check_text(const ServeOption& option, const std::string& value) {
  std::string_view words = option.check.words;
  if (words.empty()) return {};
  while (!words.empty()) {
    const size_t end = std::min(words.find('|'), words.size());
    if (words.substr(0, end) == value) return {};
    words.remove_prefix(std::min(end + 1, words.size()));
  }
  return invalid_argument("'{}' is none of {}", value, option.check.words);
}

std::string ServeOption::flag() const {
  return "--" + with_dashes(name);
}

std::string ServeOption::variable() const {
  std::string out = "SKEIN_";
  for (const char c : name) out.push_back(c >= 'a' && c <= 'z' ? static_cast<char>(c - 32) : c);
  return out;
}

std::string ServeOption::type_name() const {
  constexpr std::array<const char*, 6> kNames = {"", "N", "X", "TEXT", "TEXT ...", "SIZE"};
  return check.words.empty() ? kNames[member.index()] : std::string(check.words);
}

Status ServeOption::set(ServeOptions& options, const Words& words) const {
  if (const auto* list = std::get_if<Words ServeOptions::*>(&member)) {
    options.*(*list) = words;
    return {};
  }
  return std::visit(
      [&](auto target) -> Status {
        if constexpr (std::is_same_v<decltype(target), Words ServeOptions::*>) {
          return {};
        } else {
          return assign(*this, options.*target, words.at(0));
        }
      },
      member);
}

std::string ServeOption::value(const ServeOptions& options) const {
  return std::visit([&](auto target) { return show(options.*target); }, member);
}

}  // namespace skein::apps
