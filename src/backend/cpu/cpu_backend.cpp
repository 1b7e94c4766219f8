#include "backend/cpu/cpu_backend.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "backend/arithmetic.h"
#include "backend/check_shapes.h"
#include "backend/cpu/cpu_attention.h"
#include "backend/cpu/cpu_matrix.h"
#include "backend/cpu/kernels_for.h"
#include "backend/cpu/linear.h"
#include "backend/cpu/workers.h"
#include "backend/host_memory.h"
#include "backend/routing.h"

namespace skein {
namespace {

using cpu::CpuMatrix;

std::string_view backend_name(CpuIsa isa) {
  constexpr std::string_view kNames[] = {"cpu/scalar", "cpu/avx2", "cpu/avx512", "cpu/amx"};
  return kNames[static_cast<size_t>(isa)];
}

const CpuMatrix& own(const Matrix& matrix) {
  return static_cast<const CpuMatrix&>(matrix);
}

cpu::RowActivation row_activation(Activation kind) {
  switch (kind) {
    case Activation::kSiluGated:
      return cpu::RowActivation::kSilu;
    case Activation::kGeluTanhGated:
      return cpu::RowActivation::kGeluTanh;
    case Activation::kGeluTanh:
      return cpu::RowActivation::kGeluTanhPlain;
    case Activation::kSwigluClamped:
      return cpu::RowActivation::kSwigluClamped;
  }
  return cpu::RowActivation::kSilu;
}

// One token's key and value into a head of its block.
void store_token(const KvLayer& cache, uint32_t slot, const float* key, const float* value,
                 std::byte* head) {
  const uint32_t dim = cache.head_dim;
  if (cache.type == KvType::kF32) {
    float* const floats = reinterpret_cast<float*>(head);
    for (uint32_t d = 0; d < dim; ++d) floats[cache.key_index(slot, d)] = key[d];
    std::copy_n(value, dim, floats + cache.value_index(slot, 0));
    return;
  }
  uint16_t* const halves = reinterpret_cast<uint16_t*>(head);
  for (uint32_t d = 0; d < dim; ++d) {
    halves[cache.key_index(slot, d)] = arithmetic::round_to_bf16(key[d]);
    halves[cache.value_index(slot, d)] = arithmetic::round_to_bf16(value[d]);
  }
}

class CpuBackend final : public Backend {
 public:
  CpuBackend(ComputePool& pool, CpuIsa isa, Precision precision)
      : name_(backend_name(isa)),
        precision_(precision),
        kernels_(cpu::kernels_for(isa)),
        linear_kernels_(cpu::linear_kernels_for(isa, detect_cpu_features())),
        workers_(pool),
        linear_(workers_, kernels_, linear_kernels_),
        attention_(workers_, kernels_) {}

  std::string_view name() const override { return name_; }

  Result<Buffer> allocate(size_t bytes) override { return allocate_host(bytes); }
  Result<std::unique_ptr<Matrix>> make_matrix(std::span<const WeightView> parts) override;
  Result<std::unique_ptr<Matrix>> make_table(std::span<const WeightView> parts) override;
  uint64_t matrix_bytes(const WeightView& part) const override {
    const Definition definition = definition_of(precision_, part);
    if (definition == Definition::kF32) return bytes_of(part);
    return cpu::PackedPart(part, definition, 0, linear_kernels_).bytes();
  }
  void write(float* to, std::span<const float> from) override {
    std::copy(from.begin(), from.end(), to);
  }
  void read(std::span<float> to, const float* from) override {
    std::copy_n(from, to.size(), to.begin());
  }

  void embed(const Matrix& table, std::span<const TokenId> ids, float scale, Rows out) override;
  void norm(Rows x, const NormParams& params, Rows out) override;
  void linear(Rows x, const Matrix& matrix, const float* bias, Rows out) override {
    check_linear(x, matrix, out);
    linear_.multiply(x, own(matrix), bias, out);
  }
  void add(Rows x, Rows delta, float scale) override;
  void activate(Rows x, const ActivationParams& params, Rows out) override;
  void rope_angles(std::span<const uint32_t> positions, std::span<const float> frequencies,
                   float magnitude, Rows out) override;
  void rope(Rows x, uint32_t heads, RopeLayout layout, Rows angles) override;
  void kv_store(Rows k, Rows v, std::span<const Sequence> sequences, const KvLayer& cache) override;
  void attention(Rows q, std::span<const Sequence> sequences, const KvLayer& cache,
                 const AttentionParams& params, Rows out) override {
    check_attention(q, sequences, cache, params, out);
    attention_.run(q, sequences, cache, params, out);
  }
  void route(Rows x, RouterKind kind, Routes routes) override;
  void expert_linear(Rows x, std::span<const std::unique_ptr<Matrix>> experts, const float* biases,
                     const Routes& routes, Rows out) override {
    check_expert_linear(x, experts, routes, out);
    linear_.multiply_experts(x, experts, biases, routes, out);
  }
  void combine(Rows x, const Routes& routes, Rows out) override;
  void gather(Rows x, std::span<const uint32_t> rows, Rows out) override;
  void finish_logits(Rows x, float scale, float softcap) override;

 private:
  // fn(row) for every row of a view; the elements of a row cost `weight` multiplications each.
  template <class Fn>
  void for_rows(const Rows& x, size_t weight, const Fn& fn) {
    workers_.run(x.rows, x.rows * x.width * weight, [&](size_t, size_t row) { fn(row); });
  }

  const std::string_view name_;
  const Precision precision_;
  const cpu::KernelTable& kernels_;
  const cpu::LinearKernels& linear_kernels_;
  cpu::Workers workers_;
  cpu::WeightArena arena_;
  cpu::Linear linear_;
  cpu::Attention attention_;
};

// What an element costs, in multiplications.
constexpr size_t kCopy = 1;
constexpr size_t kExp = 4;
constexpr size_t kCosSin = 32;

Result<std::unique_ptr<Matrix>> CpuBackend::make_matrix(std::span<const WeightView> parts) {
  SKEIN_ASSIGN(WeightParts whole, WeightParts::of(parts));
  if (precision_ != Precision::kF32) {
    SKEIN_ASSIGN(std::unique_ptr<Matrix> packed,
                 CpuMatrix::pack(whole, precision_, linear_kernels_, arena_, workers_));
    return packed;
  }
  auto matrix = std::make_unique<CpuMatrix>(std::move(whole), kernels_);
  SKEIN_TRY(linear_.prepare(*matrix));
  return std::unique_ptr<Matrix>(std::move(matrix));
}

Result<std::unique_ptr<Matrix>> CpuBackend::make_table(std::span<const WeightView> parts) {
  SKEIN_ASSIGN(WeightParts whole, WeightParts::of(parts));
  return std::unique_ptr<Matrix>(std::make_unique<CpuMatrix>(std::move(whole), kernels_));
}

void CpuBackend::embed(const Matrix& table, std::span<const TokenId> ids, float scale, Rows out) {
  check_embed(table, ids, out);
  for_rows(out, kExp, [&](size_t i) {
    own(table).dequantize_row(static_cast<size_t>(ids[i]), out.row(i));
    kernels_.scale(out.row(i), scale, out.width, out.row(i));
  });
}

void CpuBackend::norm(Rows x, const NormParams& params, Rows out) {
  check_norm(x, params, out);
  const size_t width = x.width / params.parts;
  for_rows(x, kCopy, [&](size_t i) {
    for (size_t part = 0; part < params.parts; ++part) {
      const size_t offset = part * width, own_offset = params.weight_per_part ? offset : 0;
      kernels_.norm({params.kind == NormKind::kRms ? cpu::RowNorm::kRms : cpu::RowNorm::kLayer,
                     x.row(i) + offset, width, params.epsilon,
                     params.weight == nullptr ? nullptr : params.weight + own_offset,
                     params.bias == nullptr ? nullptr : params.bias + own_offset,
                     out.row(i) + offset});
    }
  });
}

void CpuBackend::add(Rows x, Rows delta, float scale) {
  check_add(x, delta);
  for_rows(x, kCopy,
           [&](size_t i) { kernels_.add_scaled(x.row(i), delta.row(i), scale, x.width); });
}

void CpuBackend::activate(Rows x, const ActivationParams& params, Rows out) {
  check_activate(x, params, out);
  for_rows(out, kExp, [&](size_t i) {
    const float* const up = params.gated() ? x.row(i) + out.width : nullptr;
    kernels_.activate({row_activation(params.kind), x.row(i), up, out.width, params.alpha,
                       params.limit, out.row(i)});
  });
}

void CpuBackend::rope_angles(std::span<const uint32_t> positions,
                             std::span<const float> frequencies, float magnitude, Rows out) {
  check_rope_angles(positions, frequencies, out);
  for_rows(out, kCosSin, [&](size_t i) {
    for (size_t j = 0; j < frequencies.size(); ++j) {
      const auto [cos, sin] =
          arithmetic::cos_sin(static_cast<float>(positions[i]) * frequencies[j]);
      out.row(i)[j] = cos * magnitude;
      out.row(i)[frequencies.size() + j] = sin * magnitude;
    }
  });
}

void CpuBackend::rope(Rows x, uint32_t heads, RopeLayout layout, Rows angles) {
  check_rope(x, heads, angles);
  const auto turn = layout == RopeLayout::kHalves ? kernels_.turn_halves : kernels_.turn_pairs;
  const size_t half = angles.width / 2, head_dim = x.width / heads;
  for_rows(x, kCopy, [&](size_t i) {
    for (size_t h = 0; h < heads; ++h) {
      turn(x.row(i) + h * head_dim, angles.row(i), angles.row(i) + half, half);
    }
  });
}

void CpuBackend::kv_store(Rows k, Rows v, std::span<const Sequence> sequences,
                          const KvLayer& cache) {
  check_kv_store(k, v, sequences, cache);
  const size_t dim = cache.head_dim;
  workers_.run(cache.heads, 2 * k.rows * k.width, [&](size_t, size_t head) {
    for (const Sequence& sequence : sequences) {
      for (uint32_t i = 0; sequence.writes_kv && i < sequence.rows; ++i) {
        const uint32_t position = sequence.start + i, slot = position % kBlockTokens;
        const size_t row = size_t{sequence.first_row} + i;
        std::byte* const to =
            cache.head(sequence.blocks[position / kBlockTokens], static_cast<uint32_t>(head));
        store_token(cache, slot, k.row(row) + head * dim, v.row(row) + head * dim, to);
      }
    }
  });
}

void CpuBackend::route(Rows x, RouterKind kind, Routes routes) {
  check_route(x, routes);
  for_rows(x, kExp * kExp, [&](size_t i) {
    route_row({x.row(i), x.width}, kind, routes.experts.subspan(i * routes.used, routes.used),
              routes.weights.subspan(i * routes.used, routes.used));
  });
}

void CpuBackend::combine(Rows x, const Routes& routes, Rows out) {
  check_combine(x, routes, out);
  for_rows(out, routes.used, [&](size_t i) {
    kernels_.combine(x.row(i * routes.used), x.stride, routes.weights.data() + i * routes.used,
                     routes.used, out.width, out.row(i));
  });
}

void CpuBackend::gather(Rows x, std::span<const uint32_t> rows, Rows out) {
  check_gather(x, rows, out);
  for (size_t i = 0; i < rows.size(); ++i) std::copy_n(x.row(rows[i]), x.width, out.row(i));
}

void CpuBackend::finish_logits(Rows x, float scale, float softcap) {
  if (scale == 1.0F && softcap == 0.0F) return;
  constexpr size_t kPiece = 4096;  // a single row is worth sharing too
  const size_t pieces = (x.width + kPiece - 1) / kPiece;
  workers_.run(x.rows * pieces, x.rows * x.width * kExp, [&](size_t, size_t item) {
    const size_t first = item % pieces * kPiece;
    kernels_.finish_logits(x.row(item / pieces) + first, std::min(kPiece, x.width - first), scale,
                           softcap);
  });
}

}  // namespace

std::unique_ptr<Backend> make_cpu_backend(ComputePool& pool, CpuIsa isa, Precision precision) {
  return std::make_unique<CpuBackend>(pool, isa, precision);
}

}  // namespace skein
