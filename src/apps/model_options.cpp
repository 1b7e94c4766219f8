#include "apps/model_options.h"

#include <optional>

#include "apps/load_progress.h"
#include "apps/model_path.h"
#include "base/cpus.h"

namespace skein::apps {
namespace {

Precision precision_of(const ModelFlags& flags) {
  if (flags.precision == "f32") return Precision::kF32;
  return flags.precision == "high" ? Precision::kHigh : Precision::kDefault;
}

std::optional<KvType> kv_type_of(const ModelFlags& flags) {
  if (flags.kv_dtype == "auto") return std::nullopt;
  if (flags.kv_dtype == "int8") return KvType::kInt8;
  return flags.kv_dtype == "f32" ? KvType::kF32 : KvType::kBf16;
}

}  // namespace

void add_model_options(CLI::App& command, ModelFlags& flags) {
  command
      .add_option("--model", flags.model,
                  "GGUF file, Hugging Face folder, name in the model folder, or 'default'")
      ->required();
  command
      .add_option("--precision", flags.precision,
                  "Arithmetic: f32 (for checking), default, or high")
      ->check(CLI::IsMember({"f32", "default", "high"}))
      ->capture_default_str();
  command
      .add_option(
          "--kv-dtype", flags.kv_dtype,
          "Numbers in the KV cache: f32, bf16, int8, or auto: bf16 at the default precision")
      ->check(CLI::IsMember({"auto", "f32", "bf16", "int8"}))
      ->capture_default_str();
  command
      .add_option("--cpu-isa", flags.isa,
                  "Instructions to use; the best there are if absent. Results do not depend on it")
      ->check(CLI::IsMember({"scalar", "avx2", "avx512", "amx"}));
  command
      .add_option(
          "--threads", flags.threads,
          "Threads that compute; one per usable core if absent. Results do not depend on it")
      ->check(CLI::Range(1U, 1024U));
  command
      .add_option("--max-context", flags.max_context,
                  "Tokens of prompt and answer together; what the model was made for if absent")
      ->check(CLI::Range(2U, 1U << 24));
}

ModelOptions model_options(const ModelFlags& flags) {
  ModelOptions options;
  options.precision = precision_of(flags);
  options.kv_type = kv_type_of(flags);
  if (!flags.isa.empty()) options.isa = flags.isa;
  options.max_context = flags.max_context;
  return options;
}

std::unique_ptr<ComputePool> make_pool(const ModelFlags& flags) {
  return std::make_unique<ComputePool>(flags.threads == 0 ? usable_cpus() : flags.threads);
}

Result<std::unique_ptr<LoadedModel>> load_model(const ModelFlags& flags, const BatchLimits& limits,
                                                ComputePool& pool) {
  SKEIN_ASSIGN(const std::string path, model_path(flags.model));
  ModelOptions options = model_options(flags);
  options.limits = limits;
  LoadShare share;
  LoadProgress progress({flags.model}, share);
  options.report = [&](uint64_t done, uint64_t all) {
    share.report(done, all);
    progress.draw();
  };
  return LoadedModel::load(path, options, pool);
}

}  // namespace skein::apps
