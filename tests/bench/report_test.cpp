#include "bench/report.h"

#include <fstream>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

namespace skein::bench {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

BenchmarkResult level(const char* mode, uint64_t concurrency, double speed) {
  BenchmarkResult result;
  result.mode = mode;
  result.concurrency = concurrency;
  result.speedup = speed / 10;
  result.num_requests = 20;
  result.total_tokens = 2000;
  result.total_time_seconds = 2000 / speed;
  result.tokens_per_second = speed;
  result.decode_tokens_per_second = speed * 1.5;
  result.p50_latency_ms = 800;
  result.p99_latency_ms = 1234.5;
  result.ttft_p50_ms = 40 * static_cast<double>(concurrency);
  result.ttft_p99_ms = 90;
  result.itl_p50_ms = 12.25;
  result.itl_p99_ms = 20;
  return result;
}

BenchmarkReport report() {
  BenchmarkReport out;
  out.version = "0.1.0";
  out.machine.cpu = "Abacus <9> & sons";
  out.machine.cpus = 2;
  out.model.name = "tiny.gguf";
  out.workload.requests = 20;
  out.results = {level("single", 1, 10), level("batched", 1, 9.5), level("batched", 8, 39)};
  out.results[2].limit_tokens_per_second = 400;
  out.results[2].percent_of_limit = 14.6;
  return out;
}

TEST(Report, JsonHasTheShapeThatScriptsRelyOn) {
  const auto json = nlohmann::json::parse(to_json(report()));
  EXPECT_EQ(json["machine"]["cpus"], 2);
  EXPECT_EQ(json["model"]["name"], "tiny.gguf");
  ASSERT_EQ(json["results"].size(), 3U);
  const auto& last = json["results"][2];
  EXPECT_EQ(last["mode"], "batched");
  EXPECT_EQ(last["concurrency"], 8);
  EXPECT_EQ(last["speedup"], 3.9);
  for (const char* name :
       {"num_requests", "total_tokens", "total_time_seconds", "tokens_per_second",
        "prefill_tokens_per_second", "decode_tokens_per_second", "avg_latency_ms", "p50_latency_ms",
        "p99_latency_ms", "ttft_p50_ms", "ttft_p99_ms", "itl_p50_ms", "itl_p99_ms",
        "prefix_hit_tokens", "preemptions"}) {
    EXPECT_TRUE(last.contains(name)) << name;
  }
  // What could not be measured is absent, not zero.
  EXPECT_FALSE(last.contains("energy_joules"));
  EXPECT_FALSE(last.contains("joules_per_token"));
  EXPECT_EQ(last["limit_tokens_per_second"], 400);
  EXPECT_FALSE(json["results"][0].contains("limit_tokens_per_second"));
}

TEST(Report, ReadsWhatItWrote) {
  const BenchmarkReport written = report();
  const auto read = parse_report(to_json(written));
  ASSERT_TRUE(read.ok()) << read.message();
  ASSERT_EQ(read->results.size(), 3U);
  EXPECT_EQ(to_json(*read).substr(to_json(*read).find("\"results\"")),
            to_json(written).substr(to_json(written).find("\"results\"")));
}

TEST(Report, RefusesWhatIsNone) {
  const std::pair<const char*, const char*> cases[] = {
      {"", "not a JSON object"},
      {"[]", "not a JSON object"},
      {"{}", "no list of results"},
      {R"({"results": []})", "is empty"},
      {R"({"results": [3]})", "a result is 3"},
      {R"({"results": [{"concurrency": 1}]})", "has no mode"},
      {R"({"results": [{"mode": 1}]})", "mode is 1"},
      {R"({"results": [{"mode": "serve", "concurrency": 1}]})", "has no tokens_per_second"},
  };
  for (const auto& [text, message] : cases) {
    const auto read = parse_report(text);
    ASSERT_FALSE(read.ok()) << text;
    EXPECT_THAT(read.message(), HasSubstr(message)) << text;
  }
}

TEST(Report, TakesFilesThatHaveFewerFigures) {
  const auto read = parse_report(
      R"({"results": [{"mode": "serve", "concurrency": 8, "tokens_per_second": 20.5}]})");
  ASSERT_TRUE(read.ok()) << read.message();
  EXPECT_EQ(read->results[0].tokens_per_second, 20.5);
  EXPECT_EQ(read->results[0].prefill_tokens_per_second, 0);
}

TEST(Table, ShowsWhatThereIs) {
  const std::string table = results_table(report().results, TableStyle::kTerminal);
  EXPECT_THAT(table, HasSubstr("one at a time"));
  EXPECT_THAT(table, HasSubstr("8 at once"));
  EXPECT_THAT(table, HasSubstr("3.90x"));
  EXPECT_THAT(table, HasSubstr("14.6 %"));
  EXPECT_THAT(table, HasSubstr("1,234"));
  EXPECT_THAT(table, Not(HasSubstr("J/token")));  // nobody could measure it
  EXPECT_THAT(table, Not(HasSubstr("preempted")));
  const std::string markdown = results_table(report().results, TableStyle::kMarkdown);
  EXPECT_THAT(markdown, HasSubstr("|---"));
  EXPECT_EQ(std::count(markdown.begin(), markdown.end(), '\n'), 5);
  EXPECT_EQ(results_table({}, TableStyle::kTerminal), "no results\n");
}

TEST(Table, ADisturbedLevelStandsBesideTheSameUndisturbed) {
  BenchmarkResult calm = level("batched", 8, 40), disturbed = level("disturbed", 8, 20);
  calm.steady_itl_p99_ms = 15;
  disturbed.steady_itl_p99_ms = 30;
  disturbed.itl_growth = 2;
  disturbed.long_prompt_tokens = 50'000;  // in 100 s
  const std::string table = results_table({calm, disturbed}, TableStyle::kMarkdown);
  EXPECT_THAT(table, HasSubstr("8 at once, disturbed"));
  EXPECT_THAT(table, HasSubstr("30.0 (2.00x) |                   500 |"));
  EXPECT_THAT(table, HasSubstr("15.0 |                     - |"));
  // Neither is a line of the plot.
  BenchmarkReport whole = report();
  whole.results = {level("batched", 4, 30), calm, disturbed};
  const Named with[] = {{"x", whole}};
  const auto svg = plot_svg(with);
  whole.results.pop_back();
  const Named without[] = {{"x", whole}};
  ASSERT_TRUE(svg.ok()) << svg.message();
  EXPECT_EQ(*svg, *plot_svg(without));
}

TEST(Table, NumbersAreShort) {
  EXPECT_EQ(readable(0), "0.00");
  EXPECT_EQ(readable(9.994), "9.99");
  EXPECT_EQ(readable(9.996), "10.0");
  EXPECT_EQ(readable(99.94), "99.9");
  EXPECT_EQ(readable(99.96), "100");
  EXPECT_EQ(readable(1234567.2), "1,234,567");
  EXPECT_EQ(readable(-1234.0), "-1,234");
  EXPECT_EQ(readable(std::nullopt), "-");
}

TEST(Compare, PrintsRatiosOfTheLevelsInCommon) {
  BenchmarkReport other = report();
  other.results.erase(other.results.begin());
  other.results[1].tokens_per_second = 78;
  other.results.push_back(level("batched", 64, 100));
  const auto table =
      comparison_table({"before", report()}, {"after", other}, TableStyle::kTerminal);
  ASSERT_TRUE(table.ok()) << table.message();
  EXPECT_THAT(*table, HasSubstr("39.0 -> 78.0"));
  EXPECT_THAT(*table, HasSubstr("2.00x"));
  EXPECT_THAT(*table, Not(HasSubstr("64 at once")));
  EXPECT_THAT(*table, Not(HasSubstr("one at a time")));
  other.results.clear();
  EXPECT_FALSE(comparison_table({"a", report()}, {"b", other}, TableStyle::kTerminal).ok());
}

TEST(Plot, IsSoundAndEscapesItsText) {
  const Named named[] = {{"batched", report()}};
  const auto svg = plot_svg(named);
  ASSERT_TRUE(svg.ok()) << svg.message();
  EXPECT_THAT(*svg, HasSubstr("Abacus &lt;9&gt; &amp; sons"));
  EXPECT_THAT(*svg, HasSubstr("hardware limit"));
  EXPECT_THAT(*svg, HasSubstr("prefers-color-scheme: dark"));
  EXPECT_THAT(*svg, Not(HasSubstr("nan")));
  EXPECT_THAT(*svg, Not(HasSubstr("inf")));
  EXPECT_THAT(*svg, Not(HasSubstr("href")));  // self-contained
  const Named two[] = {{"a", report()}, {"b", report()}};
  EXPECT_TRUE(plot_svg(two).ok());
  BenchmarkReport only_single = report();
  only_single.results.resize(1);
  const Named none[] = {{"x", only_single}};
  EXPECT_FALSE(plot_svg(none).ok());
  EXPECT_FALSE(plot_svg({}).ok());
}

}  // namespace
}  // namespace skein::bench
