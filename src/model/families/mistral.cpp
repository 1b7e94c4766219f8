// Mistral: Llama with a window in every layer, in its first versions. GGUF calls it llama.
#include "model/families/family.h"

namespace skein {

ModelDescription mistral_from_config(const HfConfig& config) {
  ModelDescription mistral = hf_base(config);
  expect_activation(config, "hidden_act", "silu");
  hf_windows(config, mistral.spec, [&](uint32_t) { return config.has("sliding_window"); });
  return mistral;
}

}  // namespace skein
