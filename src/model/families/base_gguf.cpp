// The part of GGUF's metadata that all architectures share.
#include <cmath>

#include "format/quote.h"
#include "model/families/family.h"

namespace skein {
namespace {

constexpr std::string_view kPlainFactors = "rope_freqs.weight";
constexpr std::string_view kLongFactors = "rope_factors_long.weight";
constexpr std::string_view kShortFactors = "rope_factors_short.weight";

// Factors that the file has as tensors: llama3's, worked out already; or longrope's, short and long
// ones, chosen by the context that is served, once and for all (rope.h).
void set_factors(const GgufConfig& config, RopeParams& params) {
  const ModelFile& file = config.file();
  if (file.find(kPlainFactors) != nullptr) {
    params.kind = RopeKind::kFactors;
    params.factors = config.floats(kPlainFactors);
  } else if (file.find(kLongFactors) != nullptr || file.find(kShortFactors) != nullptr) {
    const uint32_t context = config.count("context_length");
    const uint32_t original = config.count("rope.scaling.original_context_length");
    const bool is_long = (file.max_context != 0 ? file.max_context : context) > original;
    params.kind = RopeKind::kFactors;
    params.factors = config.floats(is_long ? kLongFactors : kShortFactors);
    params.magnitude =
        config.number_or("rope.scaling.attn_factor", longrope_magnitude(context, original));
  } else if (config.text_or("rope.scaling.type", "") == "longrope") {
    config.fail(not_found("tensor {} is missing", in_quotes(kLongFactors)));
  }
}

}  // namespace

RopeParams gguf_rope(const GgufConfig& config, uint32_t head_dim) {
  RopeParams params;
  params.theta = config.number_or("rope.freq_base", 10'000);
  params.dims = config.count_or("rope.dimension_count", head_dim);
  params.factor = config.number_or("rope.scaling.factor", config.number_or("rope.scale_linear", 1));
  const std::string type = config.text_or("rope.scaling.type", "");
  if (type == "yarn") {
    params.kind = RopeKind::kYarn;
    params.original_context =
        config.number_or("rope.scaling.original_context_length", config.count("context_length"));
    params.beta_fast = config.number_or("rope.scaling.yarn_beta_fast", 32);
    params.beta_slow = config.number_or("rope.scaling.yarn_beta_slow", 1);
    params.magnitude =
        yarn_magnitude(params.factor, 1) * config.number_or("rope.scaling.attn_factor", 1);
  } else if (type == "linear" || (type.empty() && params.factor != 1)) {
    params.kind = RopeKind::kLinear;
  } else if (!type.empty() && type != "none" && type != "longrope") {
    config.fail(unimplemented("{}.rope.scaling.type {} is not known", config.architecture(),
                              in_quotes(type)));
  }
  set_factors(config, params);
  return params;
}

namespace {

void set_sizes(const GgufConfig& config, ModelSpec& spec) {
  const NamedTensor* embedding = config.file().find("token_embd.weight");
  if (embedding == nullptr || embedding->view.shape.rank() != 2 ||
      embedding->view.shape[0] > kMaxVocab) {
    config.fail(embedding == nullptr
                    ? not_found("tensor 'token_embd.weight' is missing")
                    : invalid_argument("tensor 'token_embd.weight' is {}, not a table of tokens",
                                       embedding->view.shape.to_string()));
  } else {
    spec.vocab = static_cast<uint32_t>(embedding->view.shape[0]);
  }
  spec.hidden = config.count("embedding_length");
  spec.heads = config.count("attention.head_count");
  spec.kv_heads = config.count_or("attention.head_count_kv", spec.heads);
  spec.head_dim = config.count_or("attention.key_length", spec.hidden / spec.heads);
  if (const uint32_t values = config.count_or("attention.value_length", spec.head_dim);
      values != spec.head_dim) {
    config.fail(unimplemented("{}: heads have keys of {} and values of {}", config.architecture(),
                              spec.head_dim, values));
  }
  spec.context = config.count("context_length");
  const uint32_t layers = config.count("block_count");
  if (layers > kMaxLayers) {
    config.fail(invalid_argument("{} layers, at most {}", layers, kMaxLayers));
  }
  spec.layers.resize(std::min(layers, kMaxLayers));
}

}  // namespace

ModelDescription gguf_base(const GgufConfig& config) {
  ModelDescription description{.spec = {}, .names = gguf_names()};
  ModelSpec& spec = description.spec;
  set_sizes(config, spec);
  spec.norm_epsilon =
      static_cast<float>(config.number_or("attention.layer_norm_rms_epsilon", 1e-5));
  const double scale = config.number_or("attention.scale", 0);  // 0: that of the head's size
  spec.attention_scale =
      scale == 0 ? 1 / std::sqrt(static_cast<float>(spec.head_dim)) : static_cast<float>(scale);
  spec.tied_head = config.file().find("output.weight") == nullptr;
  description.names.others = {std::string(kPlainFactors), std::string(kLongFactors),
                              std::string(kShortFactors)};
  use_rope(config, spec, gguf_rope(config, spec.head_dim));
  if (const uint32_t experts = config.count_or("expert_count", 0); experts > 0) {
    const uint32_t ffn = config.has("expert_feed_forward_length")
                             ? config.count("expert_feed_forward_length")
                             : config.count("feed_forward_length");
    use_experts(spec, {.count = experts,
                       .used = config.count("expert_used_count"),
                       .ffn = ffn,
                       .router = RouterKind::kSoftmaxThenTopNormalized});
  } else {
    spec.ffn = config.count("feed_forward_length");
  }
  return description;
}

}  // namespace skein
