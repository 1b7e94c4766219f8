#include "apps/top_text.h"

#include <algorithm>
#include <cmath>
#include <fmt/format.h>
#include <string_view>

#include "apps/terminal_text.h"

namespace skein::apps {
namespace {

using TopJson = nlohmann::json;

constexpr size_t kTopBar = 24;
constexpr const char* kTopClasses[] = {"high", "normal", "low"};

// Members that may be missing, or be something else than they should.
const TopJson& part(const TopJson& of, const char* name) {
  static const TopJson kNothing;
  const auto found = of.is_object() ? of.find(name) : of.end();
  return of.is_object() && found != of.end() ? *found : kNothing;
}
double number(const TopJson& of, const char* name) {
  const TopJson& value = part(of, name);
  return value.is_number() ? value.get<double>() : 0;
}
std::string text(const TopJson& of, const char* name) {
  const TopJson& value = part(of, name);
  std::string said = value.is_string() ? value.get<std::string>() : std::string();
  std::replace(said.begin(), said.end(), '\n', ' ');
  std::replace(said.begin(), said.end(), '\t', ' ');
  return terminal_safe(said);
}

std::string span_of(double ms) {
  if (ms < 1000) return fmt::format("{:.{}f} ms", ms, ms < 10 ? 1 : 0);
  return fmt::format("{:.1f} s", ms / 1000);
}

std::string gauge(double used, double of) {
  const double share = of > 0 ? std::clamp(used / of, 0.0, 1.0) : 0;
  const auto filled = static_cast<size_t>(std::lround(share * kTopBar));
  return fmt::format("[{:#<{}}{:.<{}}]", "", filled, "", kTopBar - filled);
}

const TopJson& model_in(const TopJson& frame, const std::string& id) {
  static const TopJson kNone;
  for (const TopJson& model : part(frame, "models")) {
    if (part(model, "id").is_string() && text(model, "id") == id) return model;
  }
  return kNone;
}

struct Rates {
  double generated = 0, computed = 0, step_ms = 0;
};

Rates rates_of(const TopJson& before, const TopJson& now, const TopJson& model) {
  const TopJson& engine = part(model, "engine");
  const TopJson& old = part(model_in(before, text(model, "id")), "engine");
  const double seconds = (number(now, "at_ms") - number(before, "at_ms")) / 1000;
  if (!old.is_object() || seconds <= 0) return {};
  const auto grown = [&](const char* name) { return number(engine, name) - number(old, name); };
  const double steps = grown("steps");
  return {grown("generated_tokens") / seconds, grown("computed_tokens") / seconds,
          steps > 0 ? grown("step_us_sum") / steps / 1000 : 0};
}

void add_model(std::vector<std::string>& lines, const TopJson& before, const TopJson& now,
               const TopJson& model) {
  const TopJson& engine = part(model, "engine");
  if (!engine.is_object()) {
    const TopJson& share = part(model, "loaded_share");
    lines.push_back(fmt::format("{}  {}", text(model, "id"), text(model, "state")));
    if (share.is_number()) {
      const double loaded = share.get<double>();
      lines.push_back(fmt::format("  load   {} {:.0f} %", gauge(loaded, 1), 100 * loaded));
    }
    return;
  }
  const Rates rates = rates_of(before, now, model);
  const TopJson& kv = part(model, "kv");
  const double runs = number(engine, "running") + number(engine, "prefilling");
  lines.push_back(fmt::format("{}  {}", text(model, "id"), text(engine, "state")));
  lines.push_back(
      fmt::format("  rate   {:>8.1f} tokens/s generated   {:>8.1f} computed   {} a step",
                  rates.generated, rates.computed, span_of(rates.step_ms)));
  lines.push_back(fmt::format("  batch  {} {:.0f} of {:.0f}: {:.0f} decode, {:.0f} in prefill",
                              gauge(runs, number(model, "max_batch")), runs,
                              number(model, "max_batch"), number(engine, "running"),
                              number(engine, "prefilling")));
  lines.push_back(fmt::format("  KV     {} {:.0f} of {:.0f} blocks held, {:.0f} cached",
                              gauge(number(kv, "held"), number(kv, "pool")), number(kv, "held"),
                              number(kv, "pool"), number(kv, "cached")));
  std::string queue = "  queue ";
  for (const char* name : kTopClasses) {
    const std::string waiting = fmt::format("waiting_{}", name);
    const double count = number(engine, waiting.c_str());
    queue += fmt::format(" {} {:.0f}", name, count);
    const std::string oldest = fmt::format("oldest_{}_ms", name);
    if (count > 0) queue += fmt::format(" (oldest {})", span_of(number(engine, oldest.c_str())));
  }
  lines.push_back(std::move(queue));
  const double asked = number(engine, "prefix_query_tokens");
  lines.push_back(fmt::format(
      "  since  {:.0f} answers, {:.0f} tokens, {:.0f} % prefix hits, {:.0f} preemptions",
      number(engine, "completed"), number(engine, "generated_tokens"),
      asked > 0 ? 100 * number(engine, "prefix_hit_tokens") / asked : 0.0,
      number(engine, "preemptions")));
}

void add_request(std::vector<std::string>& lines, const TopJson& request) {
  const TopJson& choices = part(request, "choices");
  const TopJson choice = choices.is_array() && !choices.empty() ? choices.front() : TopJson();
  const std::string state = choice.is_object() ? text(choice, "state") : "preparing";
  lines.push_back(fmt::format("{:<26.26}  {:<7}{:<12}{:>7.0f} + {:<7.0f}{:>6.0f}  {:>8}  {}",
                              text(request, "id"), text(request, "class"), state,
                              number(choice, "prompt_tokens"), number(choice, "generated_tokens"),
                              number(choice, "blocks"), span_of(number(request, "age_ms")),
                              text(choice, "explanation")));
}

// No more columns than there are; a character counts as one.
std::string cut(const std::string& line, size_t columns) {
  size_t at = 0;
  for (size_t shown = 0; at < line.size(); ++at) {
    if ((static_cast<unsigned char>(line[at]) & 0xC0U) == 0x80U) continue;
    if (shown++ == columns) break;
  }
  return line.substr(0, at);
}

}  // namespace

std::vector<std::string> top_lines(const TopJson& before, const TopJson& now, TopSize size) {
  std::vector<std::string> lines;
  const bool drains = part(now, "draining") == true;
  lines.push_back(fmt::format("skein {}  {}  {:.0f} live requests  {:.0f} watch",
                              text(now, "version"), drains ? "draining" : "serving",
                              number(now, "live_requests"), number(now, "watchers")));
  for (const TopJson& model : part(now, "models")) {
    lines.emplace_back();
    add_model(lines, before, now, model);
  }
  lines.emplace_back();
  lines.push_back(fmt::format("{:<26}  {:<7}{:<12}{:>7}   {:<7}{:>6}  {:>8}  {}", "REQUEST",
                              "CLASS", "STATE", "PROMPT", "TOKENS", "BLOCKS", "AGE", "WHY"));
  for (const TopJson& request : part(now, "requests")) {
    if (lines.size() + 1 >= size.rows) {
      lines.emplace_back("...");
      break;
    }
    add_request(lines, request);
  }
  if (lines.size() > size.rows) lines.resize(size.rows);
  for (std::string& line : lines) line = cut(line, size.columns);
  return lines;
}

}  // namespace skein::apps
