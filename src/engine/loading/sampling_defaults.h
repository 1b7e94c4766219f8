// How a model's answers are drawn when a request says nothing of it, and who said so: its files,
// its authors (what they write about it and not into it), a general rule, or the operator.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "base/status.h"
#include "engine/sampling/sampling_params.h"
#include "format/weight_source.h"

namespace skein {

enum class SamplingSource : uint8_t { kFiles, kAuthors, kGeneral, kOpenAi, kOperator };
// "files", "authors", "general", "openai", "operator"
std::string_view name_of(SamplingSource source);

// One of temperature, top_k, top_p, min_p, typical_p and repetition_penalty.
struct SamplingValue {
  std::string name;
  double value = 0;
};

// "temperature=0.2 top_p=0.9". Errors name the word, or the field with its range.
Result<std::vector<SamplingValue>> parse_sampling_values(std::string_view text);

// What an operator wants beside what is known of the model.
struct SamplingWishes {
  bool openai = false;                // temperature 1 and nothing else, whatever the files say
  std::vector<SamplingValue> values;  // go before everything; as parse_sampling_values() gives them
};

struct SamplingDefaults {
  SamplingParams params;
  SamplingSource source = SamplingSource::kGeneral;
  // What the files say and makes no sense, which is left out: nobody can ask for better files.
  std::vector<std::string> ignored;
};

// The files say it in generation_config.json or in the general.sampling.* keys of a GGUF file;
// where they name no way to draw (a penalty alone is none), the authors' values count for models
// that are known, else temperature 0.7, top_p 0.95 and min_p 0.05. A model is known by what its
// metadata says of its origin: a hash of the whole file would take longer than the load that it
// belongs to, and other quantizations of the same model would not have it.
SamplingDefaults find_sampling_defaults(const WeightSource& source, const SamplingWishes& wishes);

}  // namespace skein
