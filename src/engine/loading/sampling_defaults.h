// The sampling parameters that a model's files recommend.
#pragma once

#include <vector>

#include "base/status.h"
#include "engine/sampling/sampling_params.h"
#include "format/weight_source.h"

namespace skein {

// temperature, top_k, top_p, min_p, typical_p and repetition_penalty of generation_config.json, or
// of the general.sampling.* keys of a GGUF file. What the files do not say is as in SamplingParams;
// what makes no sense is left out and described in `ignored`, since nobody can ask for better
// files.
SamplingParams read_sampling_defaults(const WeightSource& source,
                                      std::vector<std::string>& ignored);

}  // namespace skein
