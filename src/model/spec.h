// ModelSpec: everything that makes one decoder differ from another, as data. A family's file turns
// a config into one of these; decoder.cpp reads nothing else.
//
//   h = embed(token) * embedding_scale
//   per layer:  a = h [pre_attention_norm]; q, k, v = a; [qk_norm]; [rope]; attention; o
//               h += residual_scale * o [post_attention_norm]
//               f = h [pre_ffn_norm]; gated or plain or expert feed-forward
//               h += residual_scale * f [post_ffn_norm]
//               (parallel_residual: f reads the same normed input as attention)
//   logits = cap(head(norm(h)) * logit_scale)
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "backend/kv.h"
#include "backend/op_params.h"
#include "base/status.h"

namespace skein {

enum class QkNorm : uint8_t {
  kNone,
  kPerHead,     // each head alone, one weight for all heads
  kPerHeadOwn,  // each head alone, each with its own weight
  kFullWidth    // all heads as one vector
};

struct RopeSpec {
  std::vector<float> frequencies;  // rotary_dims / 2 angles per position, scaling applied
  float magnitude = 1;             // of cos and sin (yarn, longrope)
};

struct LayerSpec {
  uint32_t window = 0;           // 0: full attention
  std::optional<uint32_t> rope;  // index into ModelSpec::ropes; nullopt: no positions
  bool experts = false;          // feed-forward by experts
};

struct ExpertSpec {
  uint32_t count = 0;
  uint32_t used = 0;
  uint32_t ffn = 0;  // width inside an expert
  RouterKind router = RouterKind::kSoftmaxThenTop;
};

// An encoder: every row sees all of its text, which has to come in one step.
//
//   h = norm(embed(token) + types(which of two texts) + positions(position))
//   per layer:  h = post_attention_norm(h + o(attention(h))); h = post_ffn_norm(h + f(h))
//
// There is no head: what it gives is h.
struct EncoderSpec {
  uint32_t types = 1;  // rows of the table of texts
};

struct ModelSpec {
  std::string family;
  uint32_t vocab = 0;
  uint32_t hidden = 0;
  uint32_t heads = 0;
  uint32_t kv_heads = 0;
  uint32_t head_dim = 0;
  uint32_t ffn = 0;
  uint32_t context = 0;  // positions that the model was made for

  NormKind norm = NormKind::kRms;
  float norm_epsilon = 0;
  bool pre_attention_norm = true;
  bool post_attention_norm = false;
  bool pre_ffn_norm = true;
  bool post_ffn_norm = false;
  bool parallel_residual = false;
  QkNorm qk_norm = QkNorm::kNone;

  RopeLayout rope_layout = RopeLayout::kHalves;
  std::vector<RopeSpec> ropes;

  ActivationParams activation;
  std::optional<ExpertSpec> experts;

  float attention_scale = 0;
  float attention_softcap = 0;
  bool attention_sinks = false;

  float embedding_scale = 1;
  float residual_scale = 1;
  float logit_scale = 1;
  float logit_softcap = 0;
  bool tied_head = false;  // the embedding is the output matrix

  std::vector<LayerSpec> layers;
  std::optional<EncoderSpec> encoder;  // nullopt: a decoder

  uint32_t q_width() const { return heads * head_dim; }
  uint32_t kv_width() const { return kv_heads * head_dim; }
  uint32_t qkv_width() const { return q_width() + 2 * kv_width(); }
  // Gate and up side by side, or up alone.
  uint32_t ffn_in_width(uint32_t inner) const { return activation.gated() ? 2 * inner : inner; }
};

// Limits of a spec that came from a file: far beyond real models, and small enough that no product
// of a few of them leaves 64 bits.
inline constexpr uint32_t kMaxHidden = 1 << 18;
inline constexpr uint32_t kMaxFfn = 1 << 21;
inline constexpr uint32_t kMaxHeads = 1 << 12;
inline constexpr uint32_t kMaxHeadDim = 1 << 12;
inline constexpr uint32_t kMaxVocab = 1 << 24;
inline constexpr uint32_t kMaxLayers = 1 << 10;
inline constexpr uint32_t kMaxExperts = 1 << 12;
inline constexpr uint32_t kMaxModelContext = 1 << 28;

// The contents of a block of the model's KV cache. An encoder's is used by one layer after the
// other, and holds nothing after a step.
KvSpec kv_spec(const ModelSpec& spec, KvType type);

// That the numbers fit each other: kInvalidArgument names the ones that do not.
Status check_spec(const ModelSpec& spec);

}  // namespace skein
