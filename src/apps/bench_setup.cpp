#include "apps/bench_setup.h"

#include <algorithm>
#include <cstdio>
#include <filesystem>
#include <fmt/format.h>
#include <unistd.h>
#include <utility>

#include "apps/files.h"
#include "backend/seeded_backend.h"
#include "base/resources.h"

namespace skein::apps {
namespace {

constexpr std::chrono::milliseconds kBenchRedraw{100};
constexpr uint64_t kBenchBarWidth = 30;
constexpr uint64_t kWeightSeed = 1;

// Whether the process has room for the file and for what the backend makes of it.
Status check_room(const DummyModel& dummy, const Backend& backend, const std::string& what) {
  uint64_t packed = 0;
  for (const DummyTensor& tensor : dummy.tensors()) {
    if (!tensor.is_matrix()) continue;
    uint64_t outputs = 1;
    for (size_t i = 0; i + 1 < tensor.shape.size(); ++i) outputs *= tensor.shape[i];
    const WeightView view = TensorView{tensor.type, {outputs, tensor.shape.back()}, {}};
    packed += backend.matrix_bytes({&view, 1});
  }
  const uint64_t needed = dummy.bytes() + packed, left = available_memory();
  if (needed <= left) return {};
  return resource_exhausted(
      "{} takes {} bytes of memory on the CPU, {} as they are made and {} as they are multiplied; "
      "{} are available",
      what, needed, dummy.bytes(), packed, left);
}

// The model that --shape names, in memory alone. The backend is made before the file is opened, and
// one that does not fill matrices by itself finds them there.
Result<BenchModel> load_shape(const BenchModelFlags& flags, const DecoderLimits& limits) {
  BenchModel out;
  SKEIN_ASSIGN(DummyModel dummy, DummyModel::of_shape(flags.shape, flags.dummy_quant));
  SKEIN_ASSIGN(TemporaryFile file, TemporaryFile::in_memory());
  SKEIN_TRY(dummy.write_vectors(file));
  out.file = std::make_unique<TemporaryFile>(std::move(file));
  out.pool = make_pool(flags.model);
  ModelFlags model = flags.model;
  model.model = out.file->path();
  const auto make = [dummy = std::move(dummy), to = out.file.get(), name = flags.name()](
                        const BackendOptions& options,
                        ComputePool& pool) -> Result<std::unique_ptr<Backend>> {
    SKEIN_ASSIGN(auto backend, make_seeded_backend(options, pool, kWeightSeed));
    if (backend->device() != nullptr) return backend;
    SKEIN_TRY(check_room(dummy, *backend, name));
    SKEIN_TRY(dummy.write_matrices(*to));
    return backend;
  };
  SKEIN_ASSIGN(out.model, load_model(model, limits, *out.pool, make));
  return out;
}

}  // namespace

std::string BenchModelFlags::name() const {
  if (!shape.empty()) return fmt::format("{} with random {} weights", shape, dummy_quant);
  if (!dummy_config.empty()) {
    return fmt::format("{} with random {} weights",
                       std::filesystem::path(dummy_config).filename().string(), dummy_quant);
  }
  const auto path = model_path(model.model);
  return path.ok() ? std::filesystem::path(*path).filename().string() : model.model;
}

void add_bench_model_options(CLI::App& command, BenchModelFlags& flags) {
  add_model_options(command, flags.model);
  CLI::Option* model = command.get_option("--model");
  model->required(false);
  flags.model.model = "default";
  CLI::Option* const config =
      command
          .add_option("--dummy-weights", flags.dummy_config,
                      "A config.json: measure that shape with random weights instead")
          ->excludes(model);
  command
      .add_option("--shape", flags.shape,
                  "A shape by its name (llama-8b; a wrong one lists them), with random weights and "
                  "without a file: a GPU fills its memory from a seed")
      ->excludes(model)
      ->excludes(config);
  command
      .add_option("--type,--dummy-quant", flags.dummy_quant,
                  "What random weights are: bf16, q4_0, ...")
      ->capture_default_str();
}

Result<BenchModel> load_bench_model(const BenchModelFlags& flags, const DecoderLimits& limits) {
  if (!flags.shape.empty()) return load_shape(flags, limits);
  BenchModel out;
  ModelFlags model = flags.model;
  if (!flags.dummy_config.empty()) {
    SKEIN_ASSIGN(const DummyModel dummy,
                 DummyModel::of_config(flags.dummy_config, flags.dummy_quant));
    SKEIN_ASSIGN(TemporaryFile file, TemporaryFile::create());
    SKEIN_TRY(dummy.write_vectors(file));
    SKEIN_TRY(dummy.write_matrices(file));
    model.model = file.path();
    out.file = std::make_unique<TemporaryFile>(std::move(file));
  }
  out.pool = make_pool(model);
  SKEIN_ASSIGN(out.model, load_model(model, limits, *out.pool));
  return out;
}

Result<std::vector<bench::WorkItem>> read_trace(const WorkloadFlags& flags) {
  SKEIN_ASSIGN(const std::string text, read_file(flags.trace));
  auto items = bench::parse_trace(text, flags.max_tokens);
  if (!items.ok()) return invalid_argument("{}: {}", flags.trace, items.message());
  return std::move(*items);
}

Result<std::vector<bench::WorkItem>> work_items(const WorkloadFlags& flags, uint32_t first,
                                                uint32_t count) {
  if (!flags.trace.empty()) {
    SKEIN_ASSIGN(std::vector<bench::WorkItem> items, read_trace(flags));
    for (size_t i = 0; items.size() < count; ++i) items.push_back(items[i]);
    return items;
  }
  if (flags.prompt_tokens > 0) {
    return bench::made_up_workload(first, count, flags.prompt_tokens, flags.max_tokens);
  }
  auto items = bench::built_in_workload(first + count, flags.max_tokens, flags.shared_prefix);
  items.erase(items.begin(), items.begin() + first);
  return items;
}

void add_output_options(CLI::App& command, BenchOutput& output) {
  auto* json = command.add_flag("--json", output.json, "Print JSON instead of a table");
  command.add_flag("--markdown", output.markdown, "Print the table as Markdown")->excludes(json);
  command.add_option("--save", output.save, "Write the JSON to this file too");
  command.add_option("--plot", output.plot,
                     "Draw throughput and latency against concurrency: an SVG file");
}

void add_workload_options(CLI::App& command, WorkloadFlags& flags) {
  command
      .add_option("--prompts", flags.prompts,
                  "Requests at every level, at least; each level rounds up to whole batches")
      ->check(CLI::Range(1U, 1U << 20))
      ->capture_default_str();
  command.add_option("-n,--max-tokens", flags.max_tokens, "Tokens to generate for each")
      ->check(CLI::Range(1U, 1U << 20))
      ->capture_default_str();
  auto* shared = command.add_flag("--shared-prefix", flags.shared_prefix,
                                  "Begin every prompt with the same 200 tokens or so");
  auto* length = command
                     .add_option("--prompt-tokens", flags.prompt_tokens,
                                 "Prompts of exactly this many made-up ids instead")
                     ->check(CLI::Range(1U, 1U << 20))
                     ->excludes(shared);
  command
      .add_option("--trace", flags.trace,
                  "Requests of this file instead: JSON lines, or a server's log")
      ->excludes(shared)
      ->excludes(length);
}

std::string WorkloadFlags::name() const {
  if (!trace.empty()) return "trace " + trace;
  if (prompt_tokens > 0) return fmt::format("made-up {}-token", prompt_tokens);
  return shared_prefix ? "built-in, shared prefix" : "built-in";
}

Status show_report(const bench::BenchmarkReport& report, const BenchOutput& output,
                   const std::string& line) {
  const bench::TableStyle style = table_style(output.markdown);
  if (output.json) {
    fmt::print("{}", bench::to_json(report));
  } else {
    const char* const gap = output.markdown ? "\n" : "";
    fmt::print("{}\n{}{}", bench::describe(report), bench::results_table(report.results, style),
               gap);
    const std::string classes = bench::classes_table(report.results, style);
    if (!classes.empty()) fmt::print("\n{}", classes);
  }
  std::fflush(stdout);
  if (!output.save.empty()) SKEIN_TRY(write_file(output.save, bench::to_json(report)));
  if (!output.plot.empty()) {
    const bench::Named named[] = {{line, report}};
    SKEIN_ASSIGN(const std::string svg, bench::plot_svg(named));
    SKEIN_TRY(write_file(output.plot, svg));
  }
  return {};
}

BenchProgress::BenchProgress() : shown_(::isatty(STDERR_FILENO) == 1) {}

void BenchProgress::begins(const char* mode, uint32_t concurrency, uint64_t tokens) {
  what_ = concurrency == 0 ? std::string(mode) : fmt::format("{}, {} at once", mode, concurrency);
  total_ = std::max<uint64_t>(tokens, 1);
  began_ = last_drawn_ = std::chrono::steady_clock::now();
  draw(0, began_);
}

void BenchProgress::got_tokens(uint64_t tokens_so_far) {
  const Time now = std::chrono::steady_clock::now();
  if (now - last_drawn_ >= kBenchRedraw) draw(tokens_so_far, now);
}

void BenchProgress::ended(const bench::BenchmarkResult&) {
  clear();
}

void BenchProgress::draw(uint64_t tokens, Time now) {
  if (!shown_) return;
  last_drawn_ = now;
  drawn_ = true;
  const uint64_t filled = std::min(kBenchBarWidth, tokens * kBenchBarWidth / total_);
  const double seconds = std::chrono::duration<double>(now - began_).count();
  fmt::print(stderr, "\r\x1b[K{:<20} [{:=<{}}{:<{}}] {:3} %  {:.0f} tokens/s", what_, "", filled,
             "", kBenchBarWidth - filled, std::min<uint64_t>(100, tokens * 100 / total_),
             seconds > 0 ? static_cast<double>(tokens) / seconds : 0.0);
  std::fflush(stderr);
}

void BenchProgress::clear() {
  if (!drawn_) return;
  fmt::print(stderr, "\r\x1b[K");
  std::fflush(stderr);
  drawn_ = false;
}

}  // namespace skein::apps
