// Traces: what parse_trace of workload.h takes.
#include <algorithm>
#include <cstdio>
#include <nlohmann/json.hpp>
#include <optional>
#include <utility>

#include "bench/workload.h"

namespace skein::bench {
namespace {

using TraceJson = nlohmann::json;

constexpr uint32_t kMaxTraceTokens = 1U << 24;

// Days since 1970-01-01 of a date of the Gregorian calendar.
int64_t days_of(int64_t year, int64_t month, int64_t day) {
  year -= month <= 2 ? 1 : 0;
  const int64_t era = year / 400, year_of_era = year - era * 400;
  const int64_t day_of_year = (153 * (month + (month > 2 ? -3 : 9)) + 2) / 5 + day - 1;
  return era * 146'097 + year_of_era * 365 + year_of_era / 4 - year_of_era / 100 + day_of_year -
         719'468;
}

// The time at the beginning of a log line, "2026-01-02T03:04:05.678Z"; nullopt for anything else.
std::optional<TimeUs> log_time(std::string_view line) {
  int year = 0, month = 0, day = 0, hour = 0, minute = 0, second = 0, milli = 0;
  if (std::sscanf(std::string(line.substr(0, 24)).c_str(), "%4d-%2d-%2dT%2d:%2d:%2d.%3dZ", &year,
                  &month, &day, &hour, &minute, &second, &milli) != 7) {
    return std::nullopt;
  }
  const int64_t seconds = ((days_of(year, month, day) * 24 + hour) * 60 + minute) * 60 + second;
  return seconds * kUsPerSecond + milli * kUsPerMs;
}

Result<uint32_t> trace_count(const TraceJson& object, const char* key, uint32_t fallback) {
  const auto found = object.find(key);
  if (found == object.end()) return fallback;
  if (!found->is_number_integer() || found->get<int64_t>() < 1 ||
      found->get<int64_t>() > kMaxTraceTokens) {
    return invalid_argument("{} is {}, not a number between 1 and {}", key, found->dump(),
                            kMaxTraceTokens);
  }
  return static_cast<uint32_t>(found->get<int64_t>());
}

Result<double> trace_time_ms(const TraceJson& object, const char* key) {
  const auto found = object.find(key);
  if (found == object.end()) return 0.0;
  if (!found->is_number() || found->get<double>() < 0 || found->get<double>() > 1e12) {
    return invalid_argument("{} is {}, not a time in milliseconds", key, found->dump());
  }
  return found->get<double>();
}

Status read_prompt(const TraceJson& object, WorkItem& item) {
  const auto text = object.find("prompt");
  const auto tokens = object.find("prompt_tokens");
  if (text != object.end()) {
    if (!text->is_string() || text->get_ref<const std::string&>().empty()) {
      return invalid_argument("prompt is not a text");
    }
    item.text = text->get<std::string>();
    return {};
  }
  if (tokens == object.end()) return invalid_argument("neither prompt nor prompt_tokens is there");
  if (!tokens->is_array()) {
    SKEIN_ASSIGN(item.prompt_tokens, trace_count(object, "prompt_tokens", 1));
    return {};
  }
  for (const TraceJson& id : *tokens) {
    if (!id.is_number_integer() || id.get<int64_t>() < 0 || id.get<int64_t>() > INT32_MAX) {
      return invalid_argument("prompt_tokens holds {}, not an id", id.dump());
    }
    item.tokens.push_back(static_cast<TokenId>(id.get<int64_t>()));
  }
  if (item.tokens.empty()) return invalid_argument("prompt_tokens is empty");
  return {};
}

Result<WorkItem> read_item(const TraceJson& object, uint32_t max_tokens) {
  if (!object.is_object()) return invalid_argument("not a JSON object");
  WorkItem item;
  SKEIN_TRY(read_prompt(object, item));
  SKEIN_ASSIGN(const uint32_t output, trace_count(object, "output_tokens", max_tokens));
  SKEIN_ASSIGN(item.max_tokens, trace_count(object, "max_tokens", output));
  SKEIN_ASSIGN(const double arrival, trace_time_ms(object, "arrival_ms"));
  item.arrival_us = static_cast<TimeUs>(arrival * kUsPerMs);
  if (const auto name = object.find("class"); name != object.end()) {
    if (!name->is_string()) return invalid_argument("class is {}, not a name", name->dump());
    SKEIN_ASSIGN(item.priority, priority_of_name(name->get_ref<const std::string&>()));
  }
  return item;
}

// A line of a log: nullopt where it is not about a request that got tokens.
Result<std::optional<WorkItem>> read_log_line(std::string_view line, TimeUs ended,
                                              uint32_t max_tokens) {
  const size_t brace = line.find(" {\"");
  if (brace == std::string_view::npos) return std::optional<WorkItem>();
  const TraceJson object = TraceJson::parse(line.substr(brace + 1), nullptr, false);
  if (object.is_discarded()) return std::optional<WorkItem>();
  const auto output = object.find("output_tokens");
  if (output == object.end() || *output == 0) return std::optional<WorkItem>();
  SKEIN_ASSIGN(WorkItem item, read_item(object, max_tokens));
  SKEIN_ASSIGN(const double total, trace_time_ms(object, "total_ms"));
  item.arrival_us = ended - static_cast<TimeUs>(total * kUsPerMs);
  return std::optional<WorkItem>(std::move(item));
}

// A line of a trace: nullopt where there is nothing on it. A log's other lines are none of ours.
Result<std::optional<WorkItem>> read_line(std::string_view line, bool is_log, uint32_t max_tokens) {
  if (line.find_first_not_of(" \t\r") == std::string_view::npos) return std::optional<WorkItem>();
  if (is_log) {
    const std::optional<TimeUs> time = log_time(line);
    return time ? read_log_line(line, *time, max_tokens) : std::optional<WorkItem>();
  }
  const TraceJson object = TraceJson::parse(line, nullptr, false);
  if (object.is_discarded()) return invalid_argument("not a JSON object");
  SKEIN_ASSIGN(WorkItem item, read_item(object, max_tokens));
  return std::optional<WorkItem>(std::move(item));
}

std::vector<std::string_view> lines_of(std::string_view text) {
  std::vector<std::string_view> lines;
  while (!text.empty()) {
    const size_t end = std::min(text.find('\n'), text.size());
    lines.push_back(text.substr(0, end));
    text.remove_prefix(std::min(end + 1, text.size()));
  }
  return lines;
}

}  // namespace

Result<std::vector<WorkItem>> parse_trace(std::string_view text, uint32_t max_tokens) {
  const std::vector<std::string_view> lines = lines_of(text);
  const bool is_log = std::any_of(lines.begin(), lines.end(),
                                  [](std::string_view line) { return log_time(line).has_value(); });
  std::vector<WorkItem> items;
  for (size_t i = 0; i < lines.size(); ++i) {
    auto item = read_line(lines[i], is_log, max_tokens);
    if (!item.ok()) return invalid_argument("line {}: {}", i + 1, item.message());
    if (!item->has_value()) continue;
    items.push_back(std::move(**item));
    items.back().number = i;
  }
  if (items.empty()) return invalid_argument("the trace holds no request");
  std::sort(items.begin(), items.end(), [](const WorkItem& a, const WorkItem& b) {
    return std::pair(a.arrival_us, a.number) < std::pair(b.arrival_us, b.number);
  });
  if (is_log) {
    const TimeUs first = items.front().arrival_us;
    for (WorkItem& item : items) item.arrival_us -= first;
  }
  return items;
}

}  // namespace skein::bench
