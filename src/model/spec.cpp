#include "model/spec.h"

#include <cmath>
#include <string_view>

namespace skein {
namespace {

Status in_range(std::string_view what, uint64_t value, uint64_t limit) {
  if (value >= 1 && value <= limit) return ok_status();
  return invalid_argument("{} is {}, it must be 1 to {}", what, value, limit);
}

Status is_positive(std::string_view what, float value) {
  if (std::isfinite(value) && value > 0) return ok_status();
  return invalid_argument("{} is {}, it must be a number above 0", what, value);
}

Status is_cap(std::string_view what, float value) {
  if (std::isfinite(value) && value >= 0) return ok_status();
  return invalid_argument("{} is {}, it must be a number, 0 for none", what, value);
}

Status check_sizes(const ModelSpec& spec) {
  SKEIN_TRY(in_range("vocabulary", spec.vocab, kMaxVocab));
  SKEIN_TRY(in_range("hidden size", spec.hidden, kMaxHidden));
  SKEIN_TRY(in_range("number of heads", spec.heads, kMaxHeads));
  SKEIN_TRY(in_range("number of KV heads", spec.kv_heads, kMaxHeads));
  SKEIN_TRY(in_range("head size", spec.head_dim, kMaxHeadDim));
  SKEIN_TRY(in_range("context", spec.context, kMaxModelContext));
  SKEIN_TRY(in_range("number of layers", spec.layers.size(), kMaxLayers));
  if (spec.heads % spec.kv_heads != 0) {
    return invalid_argument("{} heads are not a multiple of {} KV heads", spec.heads,
                            spec.kv_heads);
  }
  return ok_status();
}

Status check_ropes(const ModelSpec& spec) {
  for (const RopeSpec& rope : spec.ropes) {
    const uint64_t dims = 2 * rope.frequencies.size();
    if (dims == 0 || dims > spec.head_dim) {
      return invalid_argument("{} rotary dimensions of a head of {}", dims, spec.head_dim);
    }
    SKEIN_TRY(is_positive("magnitude of rotary positions", rope.magnitude));
  }
  for (const LayerSpec& layer : spec.layers) {
    SKEIN_CHECK(!layer.rope || *layer.rope < spec.ropes.size(), "rope {} of {}",
                layer.rope.value_or(0), spec.ropes.size());
  }
  return ok_status();
}

Status check_ffn(const ModelSpec& spec) {
  bool dense = false;
  bool experts = false;
  for (const LayerSpec& layer : spec.layers) (layer.experts ? experts : dense) = true;
  if (dense) SKEIN_TRY(in_range("feed-forward size", spec.ffn, kMaxFfn));
  if (!experts) return ok_status();
  SKEIN_CHECK(spec.experts.has_value(), "layers of experts without a number of them");
  SKEIN_TRY(in_range("number of experts", spec.experts->count, kMaxExperts));
  SKEIN_TRY(in_range("feed-forward size of an expert", spec.experts->ffn, kMaxFfn));
  return in_range("number of experts used", spec.experts->used, spec.experts->count);
}

}  // namespace

KvSpec kv_spec(const ModelSpec& spec, KvType type) {
  const size_t layers = spec.encoder ? 1 : spec.layers.size();
  return {static_cast<uint32_t>(layers), spec.kv_heads, spec.head_dim, type};
}

Status check_spec(const ModelSpec& spec) {
  SKEIN_TRY(check_sizes(spec));
  SKEIN_TRY(check_ropes(spec));
  SKEIN_TRY(check_ffn(spec));
  if (spec.encoder) SKEIN_TRY(in_range("number of token types", spec.encoder->types, kMaxVocab));
  if (!(spec.norm_epsilon > 0 && spec.norm_epsilon < 1)) {
    return invalid_argument("norm epsilon is {}, it must be between 0 and 1", spec.norm_epsilon);
  }
  SKEIN_TRY(is_positive("attention scale", spec.attention_scale));
  SKEIN_TRY(is_positive("embedding scale", spec.embedding_scale));
  SKEIN_TRY(is_positive("residual scale", spec.residual_scale));
  SKEIN_TRY(is_positive("logit scale", spec.logit_scale));
  SKEIN_TRY(is_cap("attention soft cap", spec.attention_softcap));
  return is_cap("logit soft cap", spec.logit_softcap);
}

}  // namespace skein
