// `skein eval kl`: how far a run lies from the float32 run of the same weights.
#pragma once

#include <CLI/CLI.hpp>

#include "apps/commands.h"
#include "model/decoder.h"

namespace skein::apps {

// For runs that want the logits of every row: their memory is rows x vocabulary.
inline constexpr BatchLimits kAllLogits = {.rows = 64, .logit_rows = 64};

void add_eval_kl(CLI::App& eval, CommandResult& result);

}  // namespace skein::apps
