#include "backend/reference/reference_backend.h"

#include <algorithm>
#include <utility>
#include <vector>

#include "backend/arithmetic.h"
#include "backend/check_shapes.h"
#include "backend/flush_denormals.h"
#include "backend/host_memory.h"
#include "backend/reference/attention.h"
#include "backend/reference/linear.h"
#include "backend/routing.h"
#include "backend/weight_parts.h"

namespace skein {
namespace {

using arithmetic::fma;
using arithmetic::larger;
using arithmetic::smaller;

class ReferenceMatrix final : public Matrix {
 public:
  explicit ReferenceMatrix(WeightParts parts)
      : Matrix(parts.outputs(), parts.inputs(), parts.bytes(), /*reads_views=*/true),
        parts_(std::move(parts)) {}

  const WeightParts& parts() const { return parts_; }

  std::vector<float> row(size_t i) const {
    std::vector<float> values(inputs());
    parts_.dequantize_row(i, values);
    return values;
  }

 private:
  WeightParts parts_;
};

const ReferenceMatrix& own(const Matrix& matrix) {
  return static_cast<const ReferenceMatrix&>(matrix);
}

void norm_part(const float* x, size_t width, const NormParams& params, const float* weight,
               const float* bias, float* out) {
  const auto count = static_cast<float>(width);
  float mean = 0;
  if (params.kind == NormKind::kLayer) {
    mean = arithmetic::sum_of(width, [&](size_t i) { return x[i]; }) / count;
  }
  const auto centered = [&](size_t i) {
    return params.kind == NormKind::kLayer ? x[i] - mean : x[i];
  };
  const float variance = arithmetic::sum_of_products(width, centered, centered) / count;
  const float scale = 1.0F / __builtin_sqrtf(variance + params.epsilon);
  for (size_t i = 0; i < width; ++i) {
    float y = centered(i) * scale;
    if (weight != nullptr) y = y * weight[i];
    if (bias != nullptr) y = y + bias[i];
    out[i] = y;
  }
}

float activated(const ActivationParams& params, float gate, float up) {
  switch (params.kind) {
    case Activation::kSiluGated:
      return arithmetic::silu(gate) * up;
    case Activation::kGeluTanhGated:
      return arithmetic::gelu_tanh(gate) * up;
    case Activation::kGeluTanh:
      return arithmetic::gelu_tanh(gate);
    case Activation::kSwigluClamped:
      gate = smaller(params.limit, gate);
      up = larger(-params.limit, smaller(params.limit, up));
      return (gate * arithmetic::sigmoid(params.alpha * gate)) * (up + 1.0F);
  }
  return 0;
}

class ReferenceBackend final : public Backend {
 public:
  explicit ReferenceBackend(Precision precision) : precision_(precision) {}

  std::string_view name() const override { return "reference"; }

  Result<Buffer> allocate(size_t bytes) override { return allocate_host(bytes); }

  Result<std::unique_ptr<Matrix>> make_matrix(std::span<const WeightView> parts,
                                              const Consumed&) override {
    SKEIN_ASSIGN(WeightParts whole, WeightParts::of(parts));
    return std::unique_ptr<Matrix>(std::make_unique<ReferenceMatrix>(std::move(whole)));
  }
  Result<std::unique_ptr<Matrix>> make_table(std::span<const WeightView> parts) override {
    return Backend::make_matrix(parts);
  }
  uint64_t matrix_bytes(const WeightView& part) const override { return bytes_of(part); }
  Status reserve(uint64_t) override { return ok_status(); }

  void write(float* to, std::span<const float> from) override {
    std::copy(from.begin(), from.end(), to);
  }
  void read(std::span<float> to, const float* from) override {
    std::copy_n(from, to.size(), to.begin());
  }

  void embed(const Matrix& table, std::span<const TokenId> ids, float scale, Rows out) override {
    check_embed(table, ids, out);
    const FlushDenormals flush;
    for (size_t i = 0; i < ids.size(); ++i) {
      const std::vector<float> row = own(table).row(static_cast<size_t>(ids[i]));
      for (size_t k = 0; k < row.size(); ++k) out.row(i)[k] = scale * row[k];
    }
  }

  void norm(Rows x, const NormParams& params, Rows out) override {
    check_norm(x, params, out);
    const FlushDenormals flush;
    const size_t width = x.width / params.parts;
    for (size_t i = 0; i < x.rows; ++i) {
      for (size_t part = 0; part < params.parts; ++part) {
        const size_t offset = part * width, own_offset = params.weight_per_part ? offset : 0;
        norm_part(x.row(i) + offset, width, params,
                  params.weight == nullptr ? nullptr : params.weight + own_offset,
                  params.bias == nullptr ? nullptr : params.bias + own_offset, out.row(i) + offset);
      }
    }
  }

  void linear(const LinearInput& in, const Matrix& matrix, const float* bias, Rows out) override {
    check_linear(in, matrix, out);
    if (in.delta.data != nullptr) add(in.x, in.delta, in.delta_scale);
    std::vector<float> changed(in.x.rows * in.width());
    Rows x{changed.data(), in.x.rows, in.width(), in.width()};
    if (in.norm != nullptr) {
      norm(in.x, *in.norm, x);
    } else if (in.activation != nullptr) {
      activate(in.x, *in.activation, x);
    } else {
      x = in.x;
    }
    const FlushDenormals flush;
    const WeightParts& whole = own(matrix).parts();
    std::vector<float> products(x.rows);
    for (size_t n = 0; n < matrix.outputs(); ++n) {
      const size_t part = whole.part_of(n);
      const WeightView& view = whole.parts()[part];
      reference::multiply_row(definition_of(precision_, view), view, n - whole.first_row(part), x,
                              bias == nullptr ? nullptr : bias + n, products);
      for (size_t i = 0; i < x.rows; ++i) out.row(i)[n] = products[i];
    }
  }

  void add(Rows x, Rows delta, float scale) override {
    check_add(x, delta);
    const FlushDenormals flush;
    for (size_t i = 0; i < x.rows; ++i) {
      for (size_t k = 0; k < x.width; ++k) x.row(i)[k] = fma(scale, delta.row(i)[k], x.row(i)[k]);
    }
  }

  void activate(Rows x, const ActivationParams& params, Rows out) override {
    check_activate(x, params, out);
    const FlushDenormals flush;
    for (size_t i = 0; i < x.rows; ++i) {
      for (size_t k = 0; k < out.width; ++k) {
        const float up = params.gated() ? x.row(i)[out.width + k] : 0.0F;
        out.row(i)[k] = activated(params, x.row(i)[k], up);
      }
    }
  }

  void rope_angles(std::span<const uint32_t> positions, std::span<const float> frequencies,
                   float magnitude, Rows out) override {
    check_rope_angles(positions, frequencies, out);
    const FlushDenormals flush;
    for (size_t i = 0; i < positions.size(); ++i) {
      for (size_t j = 0; j < frequencies.size(); ++j) {
        const auto [cos, sin] =
            arithmetic::cos_sin(static_cast<float>(positions[i]) * frequencies[j]);
        out.row(i)[j] = cos * magnitude;
        out.row(i)[frequencies.size() + j] = sin * magnitude;
      }
    }
  }

  void rope(Rows x, uint32_t heads, RopeLayout layout, Rows angles) override {
    check_rope(x, heads, angles);
    const FlushDenormals flush;
    const size_t half = angles.width / 2;
    for (size_t i = 0; i < x.rows; ++i) {
      for (size_t h = 0; h < heads; ++h) {
        float* const head = x.row(i) + h * (x.width / heads);
        for (size_t j = 0; j < half; ++j) {
          float& a = layout == RopeLayout::kHalves ? head[j] : head[2 * j];
          float& b = layout == RopeLayout::kHalves ? head[half + j] : head[2 * j + 1];
          const float cos = angles.row(i)[j], sin = angles.row(i)[half + j];
          const float turned = fma(a, cos, -(b * sin));
          b = fma(b, cos, a * sin);
          a = turned;
        }
      }
    }
  }

  void kv_store(Rows k, Rows v, std::span<const Sequence> sequences,
                const KvLayer& cache) override {
    check_kv_store(k, v, sequences, cache);
    const FlushDenormals flush;
    for (const Sequence& sequence : sequences) {
      if (!sequence.writes_kv) continue;
      for (uint32_t i = 0; i < sequence.rows; ++i) {
        store_token(k.row(sequence.first_row + i), v.row(sequence.first_row + i),
                    sequence.start + i, sequence.blocks, cache);
      }
    }
  }

  void attention(Rows q, std::span<const Sequence> sequences, const KvLayer& cache,
                 const AttentionParams& params, Rows out) override {
    check_attention(q, sequences, cache, params, out);
    const FlushDenormals flush;
    for (const Sequence& sequence : sequences) {
      for (uint32_t i = 0; i < sequence.rows; ++i) {
        for (uint32_t head = 0; head < params.heads; ++head) {
          const size_t row = sequence.first_row + i, offset = size_t{head} * cache.head_dim;
          reference::attend({q.row(row) + offset, sequence.start + i, head}, sequence.blocks, cache,
                            params, out.row(row) + offset);
        }
      }
    }
  }

  void attend(Rows q, Rows k, Rows v, const QkTransform& transform,
              std::span<const Sequence> sequences, const KvLayer& cache,
              const AttentionParams& params, Rows out) override {
    if (transform.q_norm != nullptr) norm(q, *transform.q_norm, q);
    if (transform.k_norm != nullptr) norm(k, *transform.k_norm, k);
    if (transform.angles.data != nullptr) {
      rope(q, params.heads, transform.layout, transform.angles);
      rope(k, cache.heads, transform.layout, transform.angles);
    }
    kv_store(k, v, sequences, cache);
    attention(q, sequences, cache, params, out);
  }

  void route(Rows x, RouterKind kind, Routes routes) override {
    check_route(x, routes);
    const FlushDenormals flush;
    for (size_t i = 0; i < x.rows; ++i) {
      route_row({x.row(i), x.width}, kind, routes.experts.subspan(i * routes.used, routes.used),
                routes.weights.subspan(i * routes.used, routes.used));
    }
  }

  void expert_linear(Rows x, std::span<const std::unique_ptr<Matrix>> experts, const float* biases,
                     const Routes& routes, Rows out) override {
    check_expert_linear(x, experts, routes, out);
    for (size_t i = 0; i < out.rows; ++i) {
      const uint32_t expert = routes.experts[i];
      const size_t from = x.rows == out.rows ? i : i / routes.used;
      const Rows one_in{x.row(from), 1, x.width, x.stride};
      const Rows one_out{out.row(i), 1, out.width, out.stride};
      linear(one_in, *experts[expert], biases == nullptr ? nullptr : biases + expert * out.width,
             one_out);
    }
  }

  void combine(Rows x, const Routes& routes, Rows out) override {
    check_combine(x, routes, out);
    const FlushDenormals flush;
    for (size_t i = 0; i < out.rows; ++i) {
      for (size_t k = 0; k < out.width; ++k) {
        float sum = 0;
        for (size_t j = i * routes.used; j < (i + 1) * routes.used; ++j) {
          sum = fma(routes.weights[j], x.row(j)[k], sum);
        }
        out.row(i)[k] = sum;
      }
    }
  }

  void gather(Rows x, std::span<const uint32_t> rows, Rows out) override {
    check_gather(x, rows, out);
    for (size_t i = 0; i < rows.size(); ++i) std::copy_n(x.row(rows[i]), x.width, out.row(i));
  }

  void finish_logits(Rows x, float scale, float softcap) override {
    if (scale == 1.0F && softcap == 0.0F) return;  // not even a subnormal changes
    const FlushDenormals flush;
    for (size_t i = 0; i < x.rows; ++i) {
      for (size_t k = 0; k < x.width; ++k) {
        x.row(i)[k] = arithmetic::cap(x.row(i)[k] * scale, softcap);
      }
    }
  }

 private:
  static void store_token(const float* k, const float* v, uint32_t position,
                          std::span<const BlockId> blocks, const KvLayer& cache) {
    const uint32_t slot = position % kBlockTokens, dim = cache.head_dim;
    for (uint32_t head = 0; head < cache.heads; ++head) {
      std::byte* const to = cache.head(blocks[position / kBlockTokens], head);
      const float *const key = k + head * dim, *const value = v + head * dim;
      arithmetic::Int8Scale key_scale, value_scale;
      if (cache.type == KvType::kInt8) {
        key_scale = arithmetic::int8_scale(key, dim);
        value_scale = arithmetic::int8_scale(value, dim);
        reinterpret_cast<float*>(to)[cache.key_scale_index(slot)] = key_scale.scale;
        reinterpret_cast<float*>(to)[cache.value_scale_index(slot)] = value_scale.scale;
      }
      for (uint32_t d = 0; d < dim; ++d) {
        store(to, cache.type, cache.key_index(slot, d), key[d], key_scale.inverse);
        store(to, cache.type, cache.value_index(slot, d), value[d], value_scale.inverse);
      }
    }
  }
  static void store(std::byte* head, KvType type, size_t index, float x, float inverse) {
    switch (type) {
      case KvType::kF32:
        reinterpret_cast<float*>(head)[index] = x;
        return;
      case KvType::kBf16:
        reinterpret_cast<uint16_t*>(head)[index] = arithmetic::round_to_bf16(x);
        return;
      case KvType::kInt8:
        reinterpret_cast<int8_t*>(head)[index] = arithmetic::to_int8(x, inverse);
        return;
    }
  }

  const Precision precision_;
};

}  // namespace

std::unique_ptr<Backend> make_reference_backend(Precision precision) {
  return std::make_unique<ReferenceBackend>(precision);
}

}  // namespace skein
