#include "backend/reference/reference_backend.h"

#include <algorithm>
#include <utility>
#include <vector>

#include "backend/arithmetic.h"
#include "backend/check_shapes.h"
#include "backend/cpu/kernel_table.h"
#include "backend/host/flush_denormals.h"
#include "backend/host/host_backend.h"
#include "backend/reference/attention.h"
#include "backend/reference/linear.h"
#include "backend/registry.h"
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
    case Activation::kGelu:
      return arithmetic::gelu(gate);
    case Activation::kSwigluClamped:
      gate = smaller(params.limit, gate);
      up = larger(-params.limit, smaller(params.limit, up));
      return (gate * arithmetic::sigmoid(params.alpha * gate)) * (up + 1.0F);
  }
  return 0;
}

class ReferenceBackend final : public HostBackend {
 public:
  ReferenceBackend(Precision precision, Profile profile)
      : precision_(precision), profile_(profile) {}

  std::string_view name() const override {
    return profile_ == Profile::kHopper ? "reference/hopper" : "reference";
  }

  Result<std::unique_ptr<Matrix>> make_matrix(std::span<const WeightView> parts,
                                              const Consumed&) override {
    SKEIN_ASSIGN(WeightParts whole, WeightParts::of(parts));
    return std::unique_ptr<Matrix>(std::make_unique<ReferenceMatrix>(std::move(whole)));
  }
  Result<std::unique_ptr<Matrix>> make_table(std::span<const WeightView> parts) override {
    return Backend::make_matrix(parts);
  }
  uint64_t matrix_bytes(std::span<const WeightView> parts) const override {
    uint64_t bytes = 0;
    for (const WeightView& part : parts) bytes += bytes_of(part);
    return bytes;
  }
  uint64_t table_bytes(std::span<const WeightView>) const override { return 0; }
  Status reserve(uint64_t) override { return ok_status(); }

  VocabularyScan scan() const override { return VocabularyScan(cpu::kScalarKernels); }

  void embed(const Matrix& table, const Step& step, float scale, Rows out) override {
    const std::span<const TokenId> tokens = host_step(step).tokens;
    check_embed(table, tokens, out);
    const FlushDenormals flush;
    for (size_t i = 0; i < tokens.size(); ++i) {
      const std::vector<float> row = own(table).row(static_cast<size_t>(tokens[i]));
      for (size_t k = 0; k < row.size(); ++k) row_of(out, i)[k] = scale * row[k];
    }
  }

  void embed_by(RowFact fact, const Matrix& table, const Step& step, Rows out) override {
    check_embed_by(table, step, out);
    const FlushDenormals flush;
    each_fact(host_step(step), fact, [&](size_t i, uint32_t at) {
      SKEIN_CHECK(at < table.outputs(), "embed_by: {} of {}", at, table.outputs());
      const std::vector<float> row = own(table).row(at);
      std::copy(row.begin(), row.end(), row_of(out, i));
    });
  }

  void norm(Rows x, const NormParams& params, Rows out) override {
    check_norm(x, params, out);
    const FlushDenormals flush;
    const size_t width = x.width / params.parts;
    const float *const weight = raw(params.weight), *const bias = raw(params.bias);
    for (size_t i = 0; i < x.rows; ++i) {
      for (size_t part = 0; part < params.parts; ++part) {
        const size_t offset = part * width, own_offset = params.weight_per_part ? offset : 0;
        norm_part(row_of(x, i) + offset, width, params,
                  weight == nullptr ? nullptr : weight + own_offset,
                  bias == nullptr ? nullptr : bias + own_offset, row_of(out, i) + offset);
      }
    }
  }

  void linear(const LinearInput& in, const Matrix& matrix, Floats bias, Rows out) override {
    check_linear(in, matrix, out);
    if (in.delta.data) add(in.x, in.delta, in.delta_scale);
    std::vector<float> changed(in.x.rows * in.width());
    Rows x{RawMemory::floats(changed.data()), in.x.rows, in.width(), in.width()};
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
      const size_t row = n - whole.first_row(part);
      const float* const own_bias = bias ? raw(bias) + n : nullptr;
      const ProductType type = product_type_of(precision_, view, profile_);
      if (type == ProductType::kF16) {
        reference::multiply_row_f16(view, row, matrix.outputs(), x, own_bias, products);
      } else {
        reference::multiply_row(type, view, row, x, own_bias, products);
      }
      for (size_t i = 0; i < x.rows; ++i) row_of(out, i)[n] = products[i];
    }
  }

  void add(Rows x, Rows delta, float scale) override {
    check_add(x, delta);
    const FlushDenormals flush;
    for (size_t i = 0; i < x.rows; ++i) {
      for (size_t k = 0; k < x.width; ++k)
        row_of(x, i)[k] = fma(scale, row_of(delta, i)[k], row_of(x, i)[k]);
    }
  }

  void activate(Rows x, const ActivationParams& params, Rows out) override {
    check_activate(x, params, out);
    const FlushDenormals flush;
    for (size_t i = 0; i < x.rows; ++i) {
      for (size_t k = 0; k < out.width; ++k) {
        const float up = params.gated() ? row_of(x, i)[out.width + k] : 0.0F;
        row_of(out, i)[k] = activated(params, row_of(x, i)[k], up);
      }
    }
  }

  void rope_angles(const Step& step, const Rope& rope, Rows out) override {
    check_rope_angles(step, rope, out);
    const FlushDenormals flush;
    for (size_t i = 0; i < out.rows; ++i) {
      host_rope(rope).angles(host_step(step).positions[i], row_of(out, i));
    }
  }

  void attend(Rows q, Rows k, Rows v, const QkTransform& transform, const Step& step, KvCache& kv,
              uint32_t layer, const AttentionParams& params, Rows out) override {
    check_attend(q, k, v, transform, step, kv, params, out);
    const std::span<const Sequence> sequences = host_step(step).sequences;
    const KvLayer cache = host_kv(kv).layer(layer);
    if (transform.q_norm != nullptr) norm(q, *transform.q_norm, q);
    if (transform.k_norm != nullptr) norm(k, *transform.k_norm, k);
    const FlushDenormals flush;
    if (transform.angles.data) {
      turn(q, params.heads, transform.layout, transform.angles);
      turn(k, cache.heads, transform.layout, transform.angles);
    }
    store(k, v, sequences, cache);
    const auto sums =
        profile_ == Profile::kHopper && precision_ != Precision::kF32 && cache.type != KvType::kF32
            ? reference::AttentionSums::kTensorCores
            : reference::AttentionSums::kHost;
    for (const Sequence& sequence : sequences) {
      for (uint32_t i = 0; i < sequence.rows; ++i) {
        for (uint32_t head = 0; head < params.heads; ++head) {
          const size_t row = sequence.first_row + i, offset = size_t{head} * cache.head_dim;
          const uint32_t last = params.sees_all ? sequence.rows - 1 : i;
          reference::attend({row_of(q, row) + offset, sequence.start + last, head}, sequence.blocks,
                            cache, params, sums, row_of(out, row) + offset);
        }
      }
    }
  }

  void route(Rows x, RouterKind kind, Routes& routes) override {
    check_route(x, routes);
    const FlushDenormals flush;
    for (size_t i = 0; i < x.rows; ++i) {
      host_routes(routes).route(i, {row_of(x, i), x.width}, kind);
    }
  }

  void expert_linear(Rows x, std::span<const std::unique_ptr<Matrix>> experts, Floats biases,
                     const Routes& routes, Rows out) override {
    check_expert_linear(x, experts, routes, out);
    for (size_t i = 0; i < out.rows; ++i) {
      const uint32_t expert = host_routes(routes).experts[i];
      const size_t from = x.rows == out.rows ? i : i / routes.used();
      const Rows one_in{x.data + from * x.stride, 1, x.width, x.stride};
      const Rows one_out{out.data + i * out.stride, 1, out.width, out.stride};
      linear(one_in, *experts[expert], biases ? biases + expert * out.width : nullptr, one_out);
    }
  }

  void combine(Rows x, const Routes& routes, Rows out) override {
    check_combine(x, routes, out);
    const FlushDenormals flush;
    const std::vector<float>& weights = host_routes(routes).weights;
    for (size_t i = 0; i < out.rows; ++i) {
      for (size_t k = 0; k < out.width; ++k) {
        float sum = 0;
        for (size_t j = i * routes.used(); j < (i + 1) * routes.used(); ++j) {
          sum = fma(weights[j], row_of(x, j)[k], sum);
        }
        row_of(out, i)[k] = sum;
      }
    }
  }

  void gather(Rows x, const Step& step, Rows out) override {
    const std::span<const uint32_t> rows = host_step(step).logit_rows;
    check_gather(x, rows, out);
    for (size_t i = 0; i < rows.size(); ++i)
      std::copy_n(row_of(x, rows[i]), x.width, row_of(out, i));
  }

  void finish_logits(Rows x, float scale, float softcap) override {
    if (scale == 1.0F && softcap == 0.0F) return;  // not even a subnormal changes
    const FlushDenormals flush;
    for (size_t i = 0; i < x.rows; ++i) {
      for (size_t k = 0; k < x.width; ++k) {
        row_of(x, i)[k] = arithmetic::cap(row_of(x, i)[k] * scale, softcap);
      }
    }
  }

 private:
  // Rope: turns the first angles.width elements of each of `heads` heads, in place.
  static void turn(Rows x, uint32_t heads, RopeLayout layout, Rows angles) {
    const size_t half = angles.width / 2;
    for (size_t i = 0; i < x.rows; ++i) {
      for (size_t h = 0; h < heads; ++h) {
        float* const head = row_of(x, i) + h * (x.width / heads);
        for (size_t j = 0; j < half; ++j) {
          float& a = layout == RopeLayout::kHalves ? head[j] : head[2 * j];
          float& b = layout == RopeLayout::kHalves ? head[half + j] : head[2 * j + 1];
          const float cos = row_of(angles, i)[j], sin = row_of(angles, i)[half + j];
          const float turned = fma(a, cos, -(b * sin));
          b = fma(b, cos, a * sin);
          a = turned;
        }
      }
    }
  }

  static void store(Rows k, Rows v, std::span<const Sequence> sequences, const KvLayer& cache) {
    for (const Sequence& sequence : sequences) {
      if (!sequence.writes_kv) continue;
      for (uint32_t i = 0; i < sequence.rows; ++i) {
        store_token(row_of(k, sequence.first_row + i), row_of(v, sequence.first_row + i),
                    sequence.start + i, sequence.blocks, cache);
      }
    }
  }

  static void store_token(const float* k, const float* v, uint32_t position,
                          std::span<const BlockId> blocks, const KvLayer& cache) {
    const uint32_t slot = position % kBlockTokens, dim = cache.head_dim;
    for (uint32_t head = 0; head < cache.heads; ++head) {
      std::byte* const to = cache.head(blocks[position / kBlockTokens], head);
      const size_t first = size_t{head} * dim;
      const float *const key = k + first, *const value = v + first;
      arithmetic::Int8Scale key_scale, value_scale;
      if (cache.type == KvType::kInt8) {
        key_scale = arithmetic::int8_scale(key, dim);
        value_scale = arithmetic::int8_scale(value, dim);
        reinterpret_cast<float*>(to)[cache.key_scale_index(slot)] = key_scale.scale;
        reinterpret_cast<float*>(to)[cache.value_scale_index(slot)] = value_scale.scale;
      }
      for (uint32_t d = 0; d < dim; ++d) {
        store_element(to, cache.type, cache.key_index(slot, d), key[d], key_scale.inverse);
        store_element(to, cache.type, cache.value_index(slot, d), value[d], value_scale.inverse);
      }
    }
  }
  static void store_element(std::byte* head, KvType type, size_t index, float x, float inverse) {
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
  const Profile profile_;
};

}  // namespace

std::unique_ptr<Backend> make_reference_backend(Precision precision, Profile profile) {
  return std::make_unique<ReferenceBackend>(precision, profile);
}

Result<std::unique_ptr<Backend>> make_reference(const BackendOptions& options, ComputePool&) {
  if (options.device == "reference:hopper") {
    return make_reference_backend(options.precision, Profile::kHopper);
  }
  if (options.device != "reference") {
    return invalid_argument("'{}' is no backend, it would be reference or reference:hopper",
                            options.device);
  }
  return make_reference_backend(options.precision);
}

}  // namespace skein
