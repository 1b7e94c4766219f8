// The JSON of report.h.
#include <nlohmann/json.hpp>
#include <type_traits>

#include "bench/report.h"

namespace skein::bench {
namespace {

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

// What no result is without. Other figures may be younger than the file, or its writer had none.
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

}  // namespace

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

}  // namespace skein::bench
