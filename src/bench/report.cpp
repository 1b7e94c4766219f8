#include "bench/report.h"

#include <algorithm>
#include <cmath>
#include <fmt/format.h>
#include <functional>
#include <nlohmann/json.hpp>
#include <type_traits>

#include "base/check.h"

namespace skein::bench {
namespace {

// --- JSON ---

using ReportJson = nlohmann::ordered_json;

template <class T>
void put(ReportJson& to, const char* name, const T& value) {
  to[name] = value;
}
// A figure that could not be had is absent, not zero.
void put(ReportJson& to, const char* name, const std::optional<double>& value) {
  if (value) to[name] = *value;
}

ReportJson json_of(const BenchmarkResult& result) {
  ReportJson out = ReportJson::object();
  visit_members(result, [&](const char* name, const auto& value) { put(out, name, value); });
  for (const ClassResult& c : result.classes) {
    out["classes"].push_back({{"class", c.name},
                              {"num_requests", c.num_requests},
                              {"ttft_p50_ms", c.ttft_p50_ms},
                              {"ttft_p99_ms", c.ttft_p99_ms},
                              {"p50_latency_ms", c.p50_latency_ms},
                              {"p99_latency_ms", c.p99_latency_ms}});
  }
  return out;
}

ReportJson json_of(const MachineLimits& limits) {
  ReportJson out = {{"memory_gb_per_second", limits.memory_gb_per_second},
                    {"cache_gb_per_second", limits.cache_gb_per_second},
                    {"cache_bytes", limits.cache_bytes},
                    {"peaks", ReportJson::array()}};
  for (const ArithmeticPeak& peak : limits.peaks) {
    out["peaks"].push_back({{"name", peak.name}, {"tera_per_second", peak.tera_per_second}});
  }
  return out;
}

// No result is without these. Other figures may be younger than the file, or its writer had none.
bool is_needed(std::string_view name) {
  return name == "mode" || name == "concurrency" || name == "tokens_per_second";
}

// Reads one member; the first fault stays.
class MemberReader {
 public:
  MemberReader(const ReportJson& from, Status& fault) : from_(from), fault_(fault) {}

  template <class T>
  void operator()(const char* name, T& value) const {
    const auto found = from_.find(name);
    if constexpr (std::is_same_v<T, std::optional<double>>) {
      if (found != from_.end() && found->is_number()) value = found->template get<double>();
    } else if (found == from_.end()) {
      if (fault_.ok() && is_needed(name)) fault_ = invalid_argument("a result has no {}", name);
    } else if (!fits<T>(*found)) {
      if (fault_.ok()) fault_ = invalid_argument("a result's {} is {}", name, found->dump());
    } else {
      value = found->template get<T>();
    }
  }

 private:
  template <class T>
  static bool fits(const ReportJson& value) {
    if constexpr (std::is_same_v<T, std::string>) return value.is_string();
    if constexpr (std::is_same_v<T, bool>) return value.is_boolean();
    if constexpr (std::is_same_v<T, uint64_t>) return value.is_number_unsigned();
    return value.is_number();
  }

  const ReportJson& from_;
  Status& fault_;
};

std::string text_at(const ReportJson& object, const char* part, const char* name) {
  const auto found = object.find(part);
  if (found == object.end() || !found->is_object()) return {};
  const auto value = found->find(name);
  return value != found->end() && value->is_string() ? value->get<std::string>() : std::string();
}

// --- tables ---

// A column of the results; left out where nobody has anything to say.
struct ResultColumn {
  std::string header;
  std::function<std::string(const BenchmarkResult&)> cell;
  std::function<bool(const BenchmarkResult&)> wanted = [](const BenchmarkResult&) { return true; };
};

std::string pair_of(double p50, double p99) {
  return fmt::format("{} / {}", readable(p50), readable(p99));
}

std::string level_name(const BenchmarkResult& r) {
  if (r.mode == "single") return "one at a time";
  if (r.concurrency == 0) return "open loop";
  if (r.mode == "disturbed") return fmt::format("{} at once, disturbed", r.concurrency);
  return fmt::format("{} at once", r.concurrency);
}

std::string steady_cell(const BenchmarkResult& r) {
  const std::string growth = r.itl_growth ? fmt::format(" ({:.2f}x)", *r.itl_growth) : "";
  return readable(r.steady_itl_p99_ms) + growth;
}

std::string long_prompts_cell(const BenchmarkResult& r) {
  if (r.long_prompt_tokens == 0 || r.total_time_seconds <= 0) return "-";
  return readable(static_cast<double>(r.long_prompt_tokens) / r.total_time_seconds);
}

std::vector<ResultColumn> result_columns() {
  using R = BenchmarkResult;
  return {
      {"", [](const R& r) { return level_name(r) + (r.interrupted ? " (cut short)" : ""); }},
      {"tokens/s", [](const R& r) { return readable(r.tokens_per_second); }},
      {"speedup", [](const R& r) { return readable(r.speedup) + "x"; }},
      {"prefill/s", [](const R& r) { return readable(r.prefill_tokens_per_second); },
       [](const R& r) { return r.prefill_tokens_per_second > 0; }},
      {"decode/s", [](const R& r) { return readable(r.decode_tokens_per_second); },
       [](const R& r) { return r.decode_tokens_per_second > 0; }},
      {"limit/s", [](const R& r) { return readable(r.limit_tokens_per_second); },
       [](const R& r) { return r.limit_tokens_per_second.has_value(); }},
      {"of limit", [](const R& r) { return readable(r.percent_of_limit, " %"); },
       [](const R& r) { return r.percent_of_limit.has_value(); }},
      {"latency p50/p99 ms",
       [](const R& r) { return pair_of(r.p50_latency_ms, r.p99_latency_ms); }},
      {"first token ms", [](const R& r) { return pair_of(r.ttft_p50_ms, r.ttft_p99_ms); }},
      {"between ms", [](const R& r) { return pair_of(r.itl_p50_ms, r.itl_p99_ms); }},
      {"steady p99 ms", steady_cell, [](const R& r) { return r.itl_growth.has_value(); }},
      {"long prompts tokens/s", long_prompts_cell,
       [](const R& r) { return r.long_prompt_tokens > 0; }},
      {"outside model", [](const R& r) { return readable(r.outside_model_percent, " %"); },
       [](const R& r) { return r.outside_model_percent.has_value(); }},
      {"engine us a step", [](const R& r) { return readable(r.engine_us_per_step); },
       [](const R& r) { return r.device_pause_us.has_value(); }},
      {"device pauses us", [](const R& r) { return readable(r.device_pause_us); },
       [](const R& r) { return r.device_pause_us.has_value(); }},
      {"prefix hits", [](const R& r) { return fmt::format("{}", r.prefix_hit_tokens); },
       [](const R& r) { return r.prefix_hit_tokens > 0; }},
      {"preempted", [](const R& r) { return fmt::format("{}", r.preemptions); },
       [](const R& r) { return r.preemptions > 0; }},
      {"J/token", [](const R& r) { return readable(r.joules_per_token); },
       [](const R& r) { return r.joules_per_token.has_value(); }},
      {"steal", [](const R& r) { return readable(r.steal_percent, " %"); },
       [](const R& r) { return r.steal_percent.value_or(0) >= 0.05; }},
      {"failed", [](const R& r) { return fmt::format("{}", r.failed_requests); },
       [](const R& r) { return r.failed_requests > 0; }},
  };
}

const BenchmarkResult* find_level(const BenchmarkReport& report, const BenchmarkResult& like) {
  for (const BenchmarkResult& result : report.results) {
    if (result.mode == like.mode && result.concurrency == like.concurrency) return &result;
  }
  return nullptr;
}

std::string ratio(double a, double b) {
  return a > 0 && b > 0 ? fmt::format("{:.2f}x", b / a) : "-";
}

std::string both(double a, double b) {
  return fmt::format("{} -> {}", readable(a), readable(b));
}

}  // namespace

void TextTable::add(std::vector<std::string> cells) {
  SKEIN_CHECK(cells.size() == rows_.front().size(), "{} cells below a header of {}", cells.size(),
              rows_.front().size());
  rows_.push_back(std::move(cells));
}

std::string TextTable::print(TableStyle style) const {
  const size_t columns = rows_.front().size();
  std::vector<size_t> widths(columns, style == TableStyle::kMarkdown ? 3 : 0);
  for (const auto& row : rows_) {
    for (size_t c = 0; c < columns; ++c) widths[c] = std::max(widths[c], row[c].size());
  }
  const bool markdown = style == TableStyle::kMarkdown;
  std::string out;
  for (size_t r = 0; r < rows_.size(); ++r) {
    out += markdown ? "| " : "";
    for (size_t c = 0; c < columns; ++c) {
      if (c > 0) out += markdown ? " | " : "  ";
      out += c == 0 ? fmt::format("{:<{}}", rows_[r][c], widths[c])
                    : fmt::format("{:>{}}", rows_[r][c], widths[c]);
    }
    while (!markdown && out.back() == ' ') out.pop_back();
    out += markdown ? " |\n" : "\n";
    if (r > 0 || !markdown) continue;
    for (size_t c = 0; c < columns; ++c) {
      out += c == 0 ? "|" + std::string(widths[c] + 2, '-') + "|"
                    : std::string(widths[c] + 1, '-') + ":|";
    }
    out += "\n";
  }
  return out;
}

std::string readable(double value) {
  const double size = std::abs(value);
  if (size >= 99.95) {
    std::string digits = fmt::format("{:.0f}", value);
    for (size_t i = digits.size(); i > 3 && digits[i - 4] != '-';) digits.insert(i -= 3, 1, ',');
    return digits;
  }
  return size >= 9.995 ? fmt::format("{:.1f}", value) : fmt::format("{:.2f}", value);
}

std::string readable(const std::optional<double>& value, const char* unit) {
  return value ? readable(*value) + unit : "-";
}

std::string to_json(const BenchmarkReport& report) {
  const MachineFacts& machine = report.machine;
  ReportJson out = {{"skein", report.version},
                    {"machine",
                     {{"cpu", machine.cpu},
                      {"cpus", machine.cpus},
                      {"threads", machine.threads},
                      {"isa", machine.isa},
                      {"memory_bytes", machine.memory_bytes},
                      {"l3_bytes", machine.l3_bytes}}},
                    {"model",
                     {{"name", report.model.name},
                      {"family", report.model.family},
                      {"precision", report.model.precision},
                      {"weight_bytes", report.model.weight_bytes},
                      {"kv_bytes_per_token", report.model.kv_bytes_per_token},
                      {"context", report.model.context}}},
                    {"workload",
                     {{"prompts", report.workload.prompts},
                      {"requests", report.workload.requests},
                      {"max_tokens", report.workload.max_tokens},
                      {"rounds", report.workload.rounds}}}};
  if (!report.workload.url.empty()) out["workload"]["url"] = report.workload.url;
  if (report.limits) out["limits"] = json_of(*report.limits);
  out["results"] = ReportJson::array();
  for (const BenchmarkResult& result : report.results) out["results"].push_back(json_of(result));
  return out.dump(2, ' ', false, ReportJson::error_handler_t::replace) + "\n";
}

Result<BenchmarkReport> parse_report(std::string_view json) {
  const ReportJson document = ReportJson::parse(json, nullptr, false);
  if (document.is_discarded() || !document.is_object())
    return invalid_argument("not a JSON object");
  const auto results = document.find("results");
  if (results == document.end() || !results->is_array()) {
    return invalid_argument("there is no list of results in it");
  }
  BenchmarkReport report;
  report.model.name = text_at(document, "model", "name");
  report.machine.cpu = text_at(document, "machine", "cpu");
  for (const ReportJson& item : *results) {
    if (!item.is_object()) return invalid_argument("a result is {}", item.dump());
    BenchmarkResult result;
    Status fault;
    visit_members(result, MemberReader(item, fault));
    SKEIN_TRY(std::move(fault));
    report.results.push_back(std::move(result));
  }
  if (report.results.empty()) return invalid_argument("its list of results is empty");
  return report;
}

std::string describe(const BenchmarkReport& report) {
  const MachineFacts& machine = report.machine;
  std::string out = fmt::format("skein {}: {}", report.version, report.model.name);
  if (!report.model.family.empty()) {
    out +=
        fmt::format(" ({}, {} precision, {:.1f} MB a step)", report.model.family,
                    report.model.precision, static_cast<double>(report.model.weight_bytes) / 1e6);
  }
  if (!report.workload.url.empty()) out += " at " + report.workload.url;
  out += fmt::format("\n{}: {} CPUs, {:.0f} GiB", machine.cpu, machine.cpus,
                     static_cast<double>(machine.memory_bytes) / (uint64_t{1} << 30));
  if (machine.threads > 0) out += fmt::format("; {} threads, {}", machine.threads, machine.isa);
  out += "\n";
  if (report.limits) {
    out += fmt::format("memory {} GB/s", readable(report.limits->memory_gb_per_second));
    if (report.limits->cache_bytes > 0) {
      out += fmt::format(", {} MB of cache {} GB/s", report.limits->cache_bytes / 1'000'000,
                         readable(report.limits->cache_gb_per_second));
    }
    for (const ArithmeticPeak& peak : report.limits->peaks) {
      out += fmt::format(", {} {:.3g} T/s", peak.name, peak.tera_per_second);
    }
    out += "\n";
  }
  if (report.workload.requests > 0) {
    out += fmt::format(
        "{} prompts, {} of them or more at every level, {} tokens each{}\n",
        report.workload.prompts, report.workload.requests, report.workload.max_tokens,
        report.workload.rounds > 1 ? fmt::format(", median of {} rounds", report.workload.rounds)
                                   : "");
  }
  return out;
}

std::string results_table(const std::vector<BenchmarkResult>& results, TableStyle style) {
  std::vector<ResultColumn> columns = result_columns();
  std::erase_if(columns, [&](const ResultColumn& column) {
    return std::none_of(results.begin(), results.end(), column.wanted);
  });
  std::vector<std::string> header;
  header.reserve(columns.size());
  for (const ResultColumn& column : columns) header.push_back(column.header);
  if (header.empty()) return "no results\n";
  TextTable table(std::move(header));
  for (const BenchmarkResult& result : results) {
    std::vector<std::string> cells;
    cells.reserve(columns.size());
    for (const ResultColumn& column : columns) cells.push_back(column.cell(result));
    table.add(std::move(cells));
  }
  return table.print(style);
}

std::string classes_table(const std::vector<BenchmarkResult>& results, TableStyle style) {
  TextTable table({"", "class", "requests", "first token p50/p99 ms", "latency p50/p99 ms"});
  bool any = false;
  for (const BenchmarkResult& result : results) {
    for (const ClassResult& c : result.classes) {
      any = true;
      table.add({level_name(result), c.name, fmt::format("{}", c.num_requests),
                 pair_of(c.ttft_p50_ms, c.ttft_p99_ms),
                 pair_of(c.p50_latency_ms, c.p99_latency_ms)});
    }
  }
  return any ? table.print(style) : "";
}

std::string limits_table(const std::vector<StepLimit>& limits, TableStyle style) {
  TextTable table({"batch", "MB a step", "GB/s", "read ms", "compute ms", "tokens/s at most"});
  for (const StepLimit& limit : limits) {
    table.add({fmt::format("{}", limit.batch), readable(static_cast<double>(limit.bytes) / 1e6),
               readable(limit.gb_per_second), readable(limit.memory_us / 1e3),
               readable(limit.compute_us / 1e3), readable(limit.tokens_per_second)});
  }
  return table.print(style);
}

Result<std::string> comparison_table(const Named& a, const Named& b, TableStyle style) {
  TextTable table({fmt::format("{} -> {}", a.name, b.name), "tokens/s", "ratio", "decode/s",
                   "ratio", "first token p50 ms", "ratio", "between p50 ms", "ratio"});
  bool any = false;
  for (const BenchmarkResult& left : a.report.results) {
    const BenchmarkResult* right = find_level(b.report, left);
    if (right == nullptr) continue;
    any = true;
    table.add(
        {level_name(left), both(left.tokens_per_second, right->tokens_per_second),
         ratio(left.tokens_per_second, right->tokens_per_second),
         both(left.decode_tokens_per_second, right->decode_tokens_per_second),
         ratio(left.decode_tokens_per_second, right->decode_tokens_per_second),
         both(left.ttft_p50_ms, right->ttft_p50_ms), ratio(left.ttft_p50_ms, right->ttft_p50_ms),
         both(left.itl_p50_ms, right->itl_p50_ms), ratio(left.itl_p50_ms, right->itl_p50_ms)});
  }
  if (!any) {
    return invalid_argument("{} and {} have no level of load in common", a.name, b.name);
  }
  return table.print(style);
}

}  // namespace skein::bench
