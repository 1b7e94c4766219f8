// Both kinds of files share this.
#include "model/families/family.h"

namespace skein {

uint32_t add_rope(const Config& config, ModelSpec& spec, const RopeParams& params) {
  auto rope = make_rope(params);
  if (!rope.ok()) config.fail(rope.status());
  spec.ropes.push_back(rope.ok() ? std::move(rope).value() : RopeSpec{});
  return static_cast<uint32_t>(spec.ropes.size() - 1);
}

void use_rope(const Config& config, ModelSpec& spec, const RopeParams& params) {
  spec.ropes.clear();
  const uint32_t rope = add_rope(config, spec, params);
  for (LayerSpec& layer : spec.layers) layer.rope = rope;
}

void use_experts(ModelSpec& spec, const ExpertSpec& experts) {
  spec.experts = experts;
  for (LayerSpec& layer : spec.layers) layer.experts = true;
}

void use_window(ModelSpec& spec, uint32_t window) {
  for (LayerSpec& layer : spec.layers) layer.window = window;
}

Bias bias_if(bool required) {
  return required ? Bias::kRequired : Bias::kNone;
}

}  // namespace skein
