#include "backend/cpu/cpu_backend.h"

#include <algorithm>
#include <cstring>
#include <utility>
#include <vector>

#include "backend/arithmetic.h"
#include "backend/check_shapes.h"
#include "backend/cpu/cpu_attention.h"
#include "backend/cpu/cpu_matrix.h"
#include "backend/cpu/kernels_for.h"
#include "backend/cpu/linear.h"
#include "backend/cpu/row_ops.h"
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

// One token's key and value into a head of its block.
void store_f32(const KvLayer& cache, uint32_t slot, const float* key, const float* value,
               std::byte* head) {
  float* const floats = reinterpret_cast<float*>(head);
  for (uint32_t d = 0; d < cache.head_dim; ++d) floats[cache.key_index(slot, d)] = key[d];
  std::copy_n(value, cache.head_dim, floats + cache.value_index(slot, 0));
}

void store_bf16(const KvLayer& cache, uint32_t slot, const float* key, const float* value,
                std::byte* head) {
  uint16_t* const halves = reinterpret_cast<uint16_t*>(head);
  for (uint32_t d = 0; d < cache.head_dim; ++d) {
    halves[cache.key_index(slot, d)] = arithmetic::round_to_bf16(key[d]);
    halves[cache.value_index(slot, d)] = arithmetic::round_to_bf16(value[d]);
  }
}

void store_int8(const KvLayer& cache, uint32_t slot, const float* key, const float* value,
                std::byte* head) {
  const uint32_t dim = cache.head_dim;
  const arithmetic::Int8Scale keys = arithmetic::int8_scale(key, dim);
  const arithmetic::Int8Scale values = arithmetic::int8_scale(value, dim);
  reinterpret_cast<float*>(head)[cache.key_scale_index(slot)] = keys.scale;
  reinterpret_cast<float*>(head)[cache.value_scale_index(slot)] = values.scale;
  int8_t* const bytes = reinterpret_cast<int8_t*>(head);
  for (uint32_t d = 0; d < dim; ++d) {
    bytes[cache.key_index(slot, d)] = arithmetic::to_int8(key[d], keys.inverse);
    bytes[cache.value_index(slot, d)] = arithmetic::to_int8(value[d], values.inverse);
  }
}

using StoreToken = void (*)(const KvLayer& cache, uint32_t slot, const float* key,
                            const float* value, std::byte* head);
StoreToken store_for(KvType type) {
  constexpr StoreToken kStores[] = {store_f32, store_bf16, store_int8};
  return kStores[static_cast<size_t>(type)];
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
  Result<std::unique_ptr<Matrix>> make_matrix(std::span<const WeightView> parts,
                                              const Consumed& consumed) override;
  Result<std::unique_ptr<Matrix>> make_table(std::span<const WeightView> parts) override;
  uint64_t matrix_bytes(const WeightView& part) const override {
    const Definition definition = definition_of(precision_, part);
    if (definition == Definition::kF32) return bytes_of(part);
    return cpu::PackedPart(part, definition, 0, linear_kernels_).bytes();
  }
  Status reserve(uint64_t bytes) override {
    return precision_ == Precision::kF32 ? ok_status() : arena_.reserve(bytes);
  }
  void write(float* to, std::span<const float> from) override {
    std::copy(from.begin(), from.end(), to);
  }
  void read(std::span<float> to, const float* from) override {
    std::copy_n(from, to.size(), to.begin());
  }

  void embed(const Matrix& table, std::span<const TokenId> ids, float scale, Rows out) override;
  void norm(Rows x, const NormParams& params, Rows out) override;
  void linear(const LinearInput& in, const Matrix& matrix, const float* bias, Rows out) override {
    check_linear(in, matrix, out);
    linear_.multiply(in, own(matrix), bias, out);
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
    const auto nothing = [](size_t, size_t) {};
    attention_.run(cpu::Phase(0, 0, nothing), q, sequences, cache, params, out);
  }
  void attend(Rows q, Rows k, Rows v, const QkTransform& transform,
              std::span<const Sequence> sequences, const KvLayer& cache,
              const AttentionParams& params, Rows out) override;
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
  // Rows of one sequence whose tokens lie side by side in a block: nobody else writes to the same
  // cache lines.
  struct Piece {
    const Sequence* sequence;
    uint32_t first, count;
  };
  void list_pieces(std::span<const Sequence> sequences);
  void store_piece(const Piece& piece, Rows k, Rows v, const KvLayer& cache) const;

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
  std::vector<Piece> pieces_;
};

// What an element costs, in multiplications.
constexpr size_t kCopy = 1;
constexpr size_t kExp = 4;
constexpr size_t kCosSin = 32;

Result<std::unique_ptr<Matrix>> CpuBackend::make_matrix(std::span<const WeightView> parts,
                                                        const Consumed& consumed) {
  SKEIN_ASSIGN(WeightParts whole, WeightParts::of(parts));
  if (precision_ != Precision::kF32) {
    SKEIN_ASSIGN(
        std::unique_ptr<Matrix> packed,
        CpuMatrix::pack(whole, precision_, kernels_, linear_kernels_, arena_, workers_, consumed));
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
  for_rows(x, kCopy,
           [&](size_t i) { cpu::norm_row(kernels_, params, x.row(i), x.width, out.row(i)); });
}

void CpuBackend::add(Rows x, Rows delta, float scale) {
  check_add(x, delta);
  for_rows(x, kCopy,
           [&](size_t i) { kernels_.add_scaled(x.row(i), delta.row(i), scale, x.width); });
}

void CpuBackend::activate(Rows x, const ActivationParams& params, Rows out) {
  check_activate(x, params, out);
  for_rows(out, kExp,
           [&](size_t i) { cpu::activate_row(kernels_, params, x.row(i), out.width, out.row(i)); });
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
  for_rows(x, kCopy, [&](size_t i) {
    cpu::turn_row(kernels_, layout, angles.row(i), angles.width, heads, x.width / heads, x.row(i));
  });
}

void CpuBackend::list_pieces(std::span<const Sequence> sequences) {
  constexpr uint32_t kSideBySide = 16;
  pieces_.clear();
  for (const Sequence& sequence : sequences) {
    for (uint32_t i = 0; i < sequence.rows;) {
      const uint32_t left = kSideBySide - (sequence.start + i) % kSideBySide;
      const uint32_t count = std::min(left, sequence.rows - i);
      pieces_.push_back({&sequence, i, count});
      i += count;
    }
  }
}

void CpuBackend::store_piece(const Piece& piece, Rows k, Rows v, const KvLayer& cache) const {
  const Sequence& sequence = *piece.sequence;
  if (!sequence.writes_kv) return;
  const StoreToken store = store_for(cache.type);
  for (uint32_t i = piece.first; i < piece.first + piece.count; ++i) {
    const uint32_t position = sequence.start + i, slot = position % kBlockTokens;
    const BlockId block = sequence.blocks[position / kBlockTokens];
    const size_t row = size_t{sequence.first_row} + i;
    for (uint32_t head = 0; head < cache.heads; ++head) {
      const size_t offset = size_t{head} * cache.head_dim;
      store(cache, slot, k.row(row) + offset, v.row(row) + offset, cache.head(block, head));
    }
  }
}

void CpuBackend::kv_store(Rows k, Rows v, std::span<const Sequence> sequences,
                          const KvLayer& cache) {
  check_kv_store(k, v, sequences, cache);
  list_pieces(sequences);
  workers_.run(pieces_.size(), 2 * k.rows * k.width,
               [&](size_t, size_t i) { store_piece(pieces_[i], k, v, cache); });
}

void CpuBackend::attend(Rows q, Rows k, Rows v, const QkTransform& transform,
                        std::span<const Sequence> sequences, const KvLayer& cache,
                        const AttentionParams& params, Rows out) {
  check_kv_store(k, v, sequences, cache);
  check_attention(q, sequences, cache, params, out);
  const Rows& angles = transform.angles;
  if (transform.q_norm != nullptr) check_norm(q, *transform.q_norm, q);
  if (transform.k_norm != nullptr) check_norm(k, *transform.k_norm, k);
  if (angles.data != nullptr) check_rope(q, params.heads, angles);
  const auto change = [&](Rows x, uint32_t heads, const NormParams* norm, size_t row) {
    if (norm != nullptr) cpu::norm_row(kernels_, *norm, x.row(row), x.width, x.row(row));
    if (angles.data == nullptr) return;
    cpu::turn_row(kernels_, transform.layout, angles.row(row), angles.width, heads, cache.head_dim,
                  x.row(row));
  };
  list_pieces(sequences);
  const auto prepare = [&](size_t, size_t item) {
    const Piece& piece = pieces_[item];
    const size_t first = size_t{piece.sequence->first_row} + piece.first;
    for (size_t row = first; row < first + piece.count; ++row) {
      change(q, params.heads, transform.q_norm, row);
      change(k, cache.heads, transform.k_norm, row);
    }
    store_piece(piece, k, v, cache);
  };
  attention_.run(cpu::Phase(pieces_.size(), kExp * q.rows * q.width, prepare), q, sequences, cache,
                 params, out);
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
