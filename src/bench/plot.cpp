
#include <algorithm>
#include <cmath>
#include <fmt/format.h>

#include "bench/report.h"

namespace skein::bench {
namespace {

constexpr double kWidth = 980, kHeight = 430;
constexpr double kPanelWidth = 360, kPanelHeight = 250, kPanelTop = 96;
constexpr double kLeftPanel = 74, kRightPanel = 548;
constexpr size_t kMaxReports = 4;

// Colours hold on white and on near-black alike; text and lines follow the page.
constexpr std::string_view kStyle = R"(<style>
  .page { fill: #ffffff }
  text { font-family: system-ui, -apple-system, 'Segoe UI', Helvetica, Arial, sans-serif; fill: #1f2933 }
  .title { font-size: 17px; font-weight: 600 }
  .note { font-size: 12px; fill: #616e7c }
  .head { font-size: 13px; font-weight: 600 }
  .tick { font-size: 11px; fill: #616e7c }
  .value { font-size: 11px; font-weight: 600 }
  .grid { stroke: #e4e7eb; stroke-width: 1 }
  .axis { stroke: #9aa5b1; stroke-width: 1 }
  .line { fill: none; stroke-width: 2.5; stroke-linejoin: round; stroke-linecap: round }
  .thin { fill: none; stroke-width: 1.75; stroke-dasharray: 2 4; stroke-linecap: round }
  .c0 { stroke: #2f7fd6 } .c1 { stroke: #e07a1f } .c2 { stroke: #2fa36b } .c3 { stroke: #a25ddc }
  .d0 { fill: #2f7fd6 } .d1 { fill: #e07a1f } .d2 { fill: #2fa36b } .d3 { fill: #a25ddc }
  .limit { fill: none; stroke: #d64545; stroke-width: 1.75; stroke-dasharray: 7 4 }
  .limit-text { fill: #d64545 }
  .base { fill: none; stroke: #7b8794; stroke-width: 1.5; stroke-dasharray: 3 3 }
  @media (prefers-color-scheme: dark) {
    .page { fill: #10151c }
    text { fill: #e6ebf1 }
    .note, .tick { fill: #9aa8b7 }
    .grid { stroke: #243041 }
    .axis { stroke: #52606d }
    .limit { stroke: #ff7b72 } .limit-text { fill: #ff7b72 }
    .base { stroke: #9aa8b7 }
  }
</style>
)";

struct PlotPoint {
  double x = 0, y = 0;
};
struct PlotLine {
  std::string css;
  std::string label;
  std::vector<PlotPoint> points;
  bool dots = false;
};

std::string escaped(std::string_view text) {
  static constexpr std::string_view kSpecial = "&<>\"";
  static constexpr std::string_view kEscaped[] = {"&amp;", "&lt;", "&gt;", "&quot;"};
  std::string out;
  for (const char c : text) {
    const char shown = static_cast<unsigned char>(c) < 0x20 ? ' ' : c;
    const size_t i = kSpecial.find(shown);
    out += i == std::string_view::npos ? std::string_view(&shown, 1) : kEscaped[i];
  }
  return out;
}

// Both axes are logarithmic: concurrency doubles, and the limit may be far above.
class Panel {
 public:
  Panel(double left, std::string title, std::vector<double> xs, std::vector<PlotLine> lines)
      : left_(left), title_(std::move(title)), xs_(std::move(xs)), lines_(std::move(lines)) {
    double low = 1e300, high = 0;
    for (const PlotLine& line : lines_) {
      for (const PlotPoint& point : line.points) {
        low = std::min(low, point.y), high = std::max(high, point.y);
      }
    }
    if (high <= 0) low = 1, high = 10;
    // A little air, and at least half a decade, so that a flat line looks flat.
    low_ = std::log10(low * 0.8), high_ = std::log10(high * 1.25);
    const double lack = 0.5 - (high_ - low_);
    if (lack > 0) low_ -= lack / 2, high_ += lack / 2;
  }

  std::string draw() const {
    std::string out = fmt::format("<text class=\"head\" x=\"{}\" y=\"{}\">{}</text>\n", left_,
                                  kPanelTop - 12, escaped(title_));
    out += axes();
    for (const PlotLine& line : lines_) out += draw_line(line);
    return out + values() + legend();
  }

 private:
  double x_of(double value) const {
    const double first = std::log2(xs_.front()), last = std::log2(xs_.back());
    const double share = last > first ? (std::log2(value) - first) / (last - first) : 0.5;
    return left_ + 14 + share * (kPanelWidth - 28);
  }
  double y_of(double value) const {
    return kPanelTop + kPanelHeight * (1 - (std::log10(value) - low_) / (high_ - low_));
  }

  std::string axes() const {
    std::string out;
    for (int decade = static_cast<int>(std::floor(low_)); decade <= high_; ++decade) {
      for (const double step : {1.0, 2.0, 5.0}) {
        const double value = step * std::pow(10.0, decade), at = std::log10(value);
        if (at < low_ || at > high_ || (step != 1 && high_ - low_ > 2.4)) continue;
        out += fmt::format(
            "<line class=\"grid\" x1=\"{0}\" x2=\"{1}\" y1=\"{2:.1f}\" y2=\"{2:.1f}\"/>\n"
            "<text class=\"tick\" x=\"{3}\" y=\"{4:.1f}\" text-anchor=\"end\">{5}</text>\n",
            left_, left_ + kPanelWidth, y_of(value), left_ - 8, y_of(value) + 4,
            value < 1 ? fmt::format("{:g}", value) : tick(value));
      }
    }
    const double bottom = kPanelTop + kPanelHeight;
    out += fmt::format("<line class=\"axis\" x1=\"{0}\" x2=\"{1}\" y1=\"{2}\" y2=\"{2}\"/>\n",
                       left_, left_ + kPanelWidth, bottom);
    for (const double x : xs_) {
      out += fmt::format(
          "<text class=\"tick\" x=\"{:.1f}\" y=\"{}\" text-anchor=\"middle\">{:g}</text>\n",
          x_of(x), bottom + 17, x);
    }
    return out + fmt::format(
                     "<text class=\"note\" x=\"{}\" y=\"{}\" text-anchor=\"middle\">requests at "
                     "once</text>\n",
                     left_ + kPanelWidth / 2, bottom + 35);
  }

  static std::string tick(double value) {
    return value >= 1000 ? fmt::format("{:g}k", value / 1000) : fmt::format("{:g}", value);
  }

  std::string draw_line(const PlotLine& line) const {
    if (line.points.empty()) return {};
    std::string path;
    for (const PlotPoint& point : line.points) {
      path +=
          fmt::format("{}{:.1f} {:.1f}", path.empty() ? "M" : " L", x_of(point.x), y_of(point.y));
    }
    std::string out = fmt::format("<path class=\"{}\" d=\"{}\"/>\n", line.css, path);
    if (!line.dots) return out;
    const char colour = line.css.back();
    for (const PlotPoint& point : line.points) {
      out += fmt::format("<circle class=\"d{}\" cx=\"{:.1f}\" cy=\"{:.1f}\" r=\"3.5\"/>\n", colour,
                         x_of(point.x), y_of(point.y));
    }
    return out;
  }

  // The last value of every line, beside its end; those that would overlap move apart.
  std::string values() const {
    std::vector<std::pair<double, std::string>> labels;
    for (const PlotLine& line : lines_) {
      if (!line.dots || line.points.empty()) continue;
      labels.emplace_back(y_of(line.points.back().y), readable(line.points.back().y));
    }
    std::sort(labels.begin(), labels.end());
    std::string out;
    double lowest = 0;
    for (const auto& [y, label] : labels) {
      lowest = std::max(y + 4, lowest + 14);
      out += fmt::format("<text class=\"value\" x=\"{:.1f}\" y=\"{:.1f}\">{}</text>\n",
                         x_of(xs_.back()) + 10, lowest, label);
    }
    return out;
  }

  std::string legend() const {
    std::string out;
    double x = left_;
    for (const PlotLine& line : lines_) {
      if (line.label.empty()) continue;
      const double y = kPanelTop + kPanelHeight + 58;
      out += fmt::format(
          "<path class=\"{}\" d=\"M{:.0f} {:.0f} h18\"/>\n"
          "<text class=\"{}\" x=\"{:.0f}\" y=\"{:.0f}\">{}</text>\n",
          line.css, x, y - 4, line.css == "limit" ? "tick limit-text" : "tick", x + 23, y,
          escaped(line.label));
      x += 36 + 6.2 * static_cast<double>(line.label.size());
    }
    return out;
  }

  double left_;
  std::string title_;
  std::vector<double> xs_;
  std::vector<PlotLine> lines_;
  double low_ = 0, high_ = 1;
};

bool is_level(const BenchmarkResult& result) {
  return result.mode != "single" && result.mode != "disturbed" && result.concurrency > 0;
}

template <class Value>
PlotLine line_of(const Named& named, std::string css, std::string label, const Value& value) {
  PlotLine line{std::move(css), std::move(label), {}, true};
  for (const BenchmarkResult& result : named.report.results) {
    const double y = is_level(result) ? value(result) : 0;
    if (y > 0) line.points.push_back({static_cast<double>(result.concurrency), y});
  }
  return line;
}

std::vector<double> levels_of(std::span<const Named> reports) {
  std::vector<double> xs;
  for (const Named& named : reports) {
    for (const BenchmarkResult& result : named.report.results) {
      if (is_level(result)) xs.push_back(static_cast<double>(result.concurrency));
    }
  }
  std::sort(xs.begin(), xs.end());
  xs.erase(std::unique(xs.begin(), xs.end()), xs.end());
  return xs;
}

Panel throughput_panel(std::span<const Named> reports, const std::vector<double>& xs) {
  std::vector<PlotLine> lines;
  PlotLine limit =
      line_of(reports.front(), "limit", "hardware limit (decode)",
              [](const BenchmarkResult& r) { return r.limit_tokens_per_second.value_or(0); });
  limit.dots = false;
  if (!limit.points.empty()) lines.push_back(std::move(limit));
  for (const BenchmarkResult& result : reports.front().report.results) {
    if (result.mode != "single") continue;
    lines.push_back(
        {"base",
         "one at a time",
         {{xs.front(), result.tokens_per_second}, {xs.back(), result.tokens_per_second}}});
  }
  for (size_t i = 0; i < reports.size(); ++i) {
    lines.push_back(line_of(reports[i], fmt::format("line c{}", i), reports[i].name,
                            [](const BenchmarkResult& r) { return r.tokens_per_second; }));
  }
  return {kLeftPanel, "Throughput, tokens per second", xs, std::move(lines)};
}

Panel latency_panel(std::span<const Named> reports, const std::vector<double>& xs) {
  std::vector<PlotLine> lines;
  for (size_t i = 0; i < reports.size(); ++i) {
    const bool alone = reports.size() == 1;
    lines.push_back(line_of(reports[i], fmt::format("line c{}", i),
                            alone ? "first token, median" : reports[i].name,
                            [](const BenchmarkResult& r) { return r.ttft_p50_ms; }));
    lines.push_back(line_of(reports[i], fmt::format("thin c{}", i + (alone ? 1 : 0)),
                            alone ? "between tokens, median" : "",
                            [](const BenchmarkResult& r) { return r.itl_p50_ms; }));
  }
  return {kRightPanel,
          reports.size() == 1 ? "Latency, milliseconds"
                              : "First token (line) and between tokens (dotted), ms",
          xs, std::move(lines)};
}

}  // namespace

Result<std::string> plot_svg(std::span<const Named> reports) {
  if (reports.empty() || reports.size() > kMaxReports) {
    return invalid_argument("a plot takes 1 to {} runs, not {}", kMaxReports, reports.size());
  }
  const std::vector<double> xs = levels_of(reports);
  if (xs.empty()) return invalid_argument("there is no level of concurrency to plot");
  const BenchmarkReport& first = reports.front().report;
  return fmt::format(
      "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {0} {1}\" width=\"{0}\" "
      "height=\"{1}\" "
      "role=\"img\">\n<title>Throughput and latency against concurrency</title>\n{2}"
      "<rect class=\"page\" width=\"{0}\" height=\"{1}\" rx=\"10\"/>\n"
      "<text class=\"title\" x=\"24\" y=\"34\">{3}</text>\n"
      "<text class=\"note\" x=\"24\" y=\"54\">{4}</text>\n{5}{6}</svg>\n",
      kWidth, kHeight, kStyle, escaped(first.model.name), escaped(first.machine.cpu),
      throughput_panel(reports, xs).draw(), latency_panel(reports, xs).draw());
}

}  // namespace skein::bench
