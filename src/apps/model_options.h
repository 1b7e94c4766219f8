// The options by which every command that computes names its model and the machine's part in it.
#pragma once

#include <CLI/CLI.hpp>
#include <cstdint>
#include <memory>
#include <string>

#include "base/compute_pool.h"
#include "base/status.h"
#include "engine/loading/loaded_model.h"

namespace skein::apps {

struct ModelFlags {
  std::string model;
  std::string precision = "default";
  std::string kv_dtype = "auto";
  std::string isa;           // empty: the best there is
  uint32_t threads = 0;      // 0: one per usable core
  uint32_t max_context = 0;  // 0: the model's own
};

// --model, --precision, --kv-dtype, --cpu-isa, --threads, --max-context.
void add_model_options(CLI::App& command, ModelFlags& flags);

// What the flags say, without limits.
ModelOptions model_options(const ModelFlags& flags);

std::unique_ptr<ComputePool> make_pool(const ModelFlags& flags);

// Loads what the flags name, with workspace for batches of `limits`; a terminal shows how far it
// is.
Result<std::unique_ptr<LoadedModel>> load_model(const ModelFlags& flags, const BatchLimits& limits,
                                                ComputePool& pool);

}  // namespace skein::apps
