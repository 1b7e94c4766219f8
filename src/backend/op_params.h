// Parameters of ops beside their rows.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>

#include "backend/memory.h"

namespace skein {

enum class NormKind : uint8_t { kRms, kLayer };

struct NormParams {
  NormKind kind = NormKind::kRms;
  float epsilon = 0;
  Floats weight;  // [width]; nullptr: all ones
  Floats bias;    // [width]; nullptr: none
  // A row is this many equal parts (heads), each normed alone with a weight of its own size; the
  // same weight for all of them, or one part of the weight each.
  uint32_t parts = 1;
  bool weight_per_part = false;
};

enum class RopeLayout : uint8_t {
  kHalves,  // element i turns with i + rotary / 2
  kPairs,   // element 2i turns with 2i + 1
};

struct AttentionParams {
  uint32_t heads = 0;  // of the queries; a multiple of the cache's heads
  float scale = 1;
  float softcap = 0;    // 0: none; else s = softcap * tanh(s / softcap)
  uint32_t window = 0;  // 0: none; else position p sees (p - window, p]
  Floats sinks;         // [heads] logits that take part in the softmax and carry no value
  // A row sees all of its sequence, what comes after it too; then there is no window, and only a
  // backend that runs_encoders() does it.
  bool sees_all = false;
};

enum class Activation : uint8_t {
  kSiluGated,      // [gate | up] -> silu(gate) * up
  kGeluTanhGated,  // [gate | up] -> gelu(gate) * up, tanh form
  kGeluTanh,       // x -> gelu(x), tanh form
  kGelu,           // x -> gelu(x); where a backend runs_encoders()
  kSwigluClamped,  // [gate | up]; gate <= limit, |up| <= limit; gate * sigmoid(alpha * gate) * (up
                   // + 1)
};

struct ActivationParams {
  Activation kind = Activation::kSiluGated;
  float alpha = 0;  // of kSwigluClamped
  float limit = 0;

  bool gated() const { return kind != Activation::kGeluTanh && kind != Activation::kGelu; }
};

// Rows as a product takes them. In this order, where given:
//   delta       x += delta_scale * delta, which stays in x
//   norm        of each row, in one part
//   activation  of each row
struct LinearInput {
  LinearInput(Rows rows) : x(rows) {}  // NOLINT: rows as they are

  size_t width() const {
    return activation != nullptr && activation->gated() ? x.width / 2 : x.width;
  }

  Rows x;
  Rows delta{};  // no data: none
  float delta_scale = 1;
  const NormParams* norm = nullptr;
  const ActivationParams* activation = nullptr;
};

// Queries and keys go through this before they meet: norms, then rope.
struct QkTransform {
  const NormParams* q_norm = nullptr;
  const NormParams* k_norm = nullptr;
  RopeLayout layout = RopeLayout::kHalves;
  Rows angles{};  // no data: no rope
};

enum class RouterKind : uint8_t {
  kSoftmaxThenTop,            // weights are the softmax over all experts
  kSoftmaxThenTopNormalized,  // the same, divided by their sum
  kTopThenSoftmax,            // weights are the softmax over the chosen ones
};

// The frequencies of a rope, made by Backend::make_rope at load.
class Rope {
 public:
  virtual ~Rope() = default;
  size_t width() const { return width_; }  // of a row of angles: [cos | sin]

 protected:
  explicit Rope(size_t width) : width_(width) {}

 private:
  size_t width_;
};

// Which experts the rows of a step go to, and with what weights: `used` of them a row, best first
// (the lower number first among equals). In backend memory, for as many rows as it was made for.
class Routes {
 public:
  virtual ~Routes() = default;
  size_t rows() const { return rows_; }
  uint32_t used() const { return used_; }

 protected:
  Routes(size_t rows, uint32_t used) : rows_(rows), used_(used) {}

 private:
  size_t rows_;
  uint32_t used_;
};

}  // namespace skein
