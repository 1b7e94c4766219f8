#include "backend/cpu/cpu_backend.h"

#include <algorithm>
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
#include "backend/host/flush_denormals.h"
#include "backend/host/host_backend.h"
#include "backend/registry.h"

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

class CpuBackend final : public HostBackend {
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

  Result<std::unique_ptr<Matrix>> make_matrix(std::span<const WeightView> parts,
                                              const Consumed& consumed) override;
  Result<std::unique_ptr<Matrix>> make_table(std::span<const WeightView> parts) override;
  uint64_t matrix_bytes(std::span<const WeightView> parts) const override {
    uint64_t bytes = 0;
    for (const WeightView& part : parts) bytes += part_bytes(part);
    return bytes;
  }
  uint64_t table_bytes(std::span<const WeightView>) const override { return 0; }
  Status reserve(uint64_t bytes) override {
    return precision_ == Precision::kF32 ? ok_status() : arena_.reserve(bytes);
  }
  VocabularyScan scan() const override { return VocabularyScan(kernels_); }

  void embed(const Matrix& table, const Step& step, float scale, Rows out) override;
  void embed_by(RowFact fact, const Matrix& table, const Step& step, Rows out) override;
  void norm(Rows x, const NormParams& params, Rows out) override;
  void linear(const LinearInput& in, const Matrix& matrix, Floats bias, Rows out) override {
    check_linear(in, matrix, out);
    linear_.multiply(in, own(matrix), raw(bias), out);
  }
  void add(Rows x, Rows delta, float scale) override;
  void activate(Rows x, const ActivationParams& params, Rows out) override;
  void rope_angles(const Step& step, const Rope& rope, Rows out) override;
  void attend(Rows q, Rows k, Rows v, const QkTransform& transform, const Step& step,
              KvCache& cache, uint32_t layer, const AttentionParams& params, Rows out) override;
  void route(Rows x, RouterKind kind, Routes& routes) override;
  void expert_linear(Rows x, std::span<const std::unique_ptr<Matrix>> experts, Floats biases,
                     const Routes& routes, Rows out) override {
    check_expert_linear(x, experts, routes, out);
    linear_.multiply_experts(x, experts, raw(biases), host_routes(routes), out);
  }
  void combine(Rows x, const Routes& routes, Rows out) override;
  void gather(Rows x, const Step& step, Rows out) override;
  void finish_logits(Rows x, float scale, float softcap) override;

 private:
  // Rows of one sequence whose tokens lie side by side in a block: nobody else writes to the same
  // cache lines.
  struct Piece {
    const Sequence* sequence;
    uint32_t first, count;
  };
  uint64_t part_bytes(const WeightView& part) const {
    const ProductType product_type = product_type_of(precision_, part);
    if (product_type == ProductType::kF32) return bytes_of(part);
    return cpu::PackedPart(part, product_type, 0, linear_kernels_).bytes();
  }
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

// An element costs so many multiplications.
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

void CpuBackend::embed(const Matrix& table, const Step& step, float scale, Rows out) {
  const std::span<const TokenId> tokens = host_step(step).tokens;
  check_embed(table, tokens, out);
  for_rows(out, kExp, [&](size_t i) {
    own(table).dequantize_row(static_cast<size_t>(tokens[i]), row_of(out, i));
    kernels_.scale(row_of(out, i), scale, out.width, row_of(out, i));
  });
}

void CpuBackend::embed_by(RowFact fact, const Matrix& table, const Step& step, Rows out) {
  check_embed_by(table, step, out);
  const FlushDenormals flush;
  each_fact(host_step(step), fact, [&](size_t i, uint32_t at) {
    SKEIN_CHECK(at < table.outputs(), "embed_by: {} of {}", at, table.outputs());
    own(table).dequantize_row(at, row_of(out, i));
  });
}

void CpuBackend::norm(Rows x, const NormParams& params, Rows out) {
  check_norm(x, params, out);
  for_rows(x, kCopy, [&](size_t i) {
    cpu::norm_row(kernels_, params, row_of(x, i), x.width, row_of(out, i));
  });
}

void CpuBackend::add(Rows x, Rows delta, float scale) {
  check_add(x, delta);
  for_rows(x, kCopy,
           [&](size_t i) { kernels_.add_scaled(row_of(x, i), row_of(delta, i), scale, x.width); });
}

void CpuBackend::activate(Rows x, const ActivationParams& params, Rows out) {
  check_activate(x, params, out);
  for_rows(out, kExp, [&](size_t i) {
    cpu::activate_row(kernels_, params, row_of(x, i), out.width, row_of(out, i));
  });
}

void CpuBackend::rope_angles(const Step& step, const Rope& rope, Rows out) {
  check_rope_angles(step, rope, out);
  const std::vector<uint32_t>& positions = host_step(step).positions;
  for_rows(out, kCosSin, [&](size_t i) { host_rope(rope).angles(positions[i], row_of(out, i)); });
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
  const auto store = [&](uint32_t slot, const float* key, const float* value, std::byte* head) {
    switch (cache.type) {
      case KvType::kF32:
        return store_f32(cache, slot, key, value, head);
      case KvType::kBf16:
        return kernels_.store_bf16({key, value, cache.head_dim, slot, head});
      case KvType::kInt8:
        return store_int8(cache, slot, key, value, head);
    }
  };
  for (uint32_t i = piece.first; i < piece.first + piece.count; ++i) {
    const uint32_t position = sequence.start + i, slot = position % kBlockTokens;
    const BlockId block = sequence.blocks[position / kBlockTokens];
    const size_t row = size_t{sequence.first_row} + i;
    for (uint32_t head = 0; head < cache.heads; ++head) {
      const size_t offset = size_t{head} * cache.head_dim;
      store(slot, row_of(k, row) + offset, row_of(v, row) + offset, cache.head(block, head));
    }
  }
}

void CpuBackend::attend(Rows q, Rows k, Rows v, const QkTransform& transform, const Step& step,
                        KvCache& kv, uint32_t layer, const AttentionParams& params, Rows out) {
  check_attend(q, k, v, transform, step, kv, params, out);
  const std::span<const Sequence> sequences = host_step(step).sequences;
  const KvLayer cache = host_kv(kv).layer(layer);
  const Rows& angles = transform.angles;
  const auto change = [&](Rows x, uint32_t heads, const NormParams* norm, size_t row) {
    if (norm != nullptr) cpu::norm_row(kernels_, *norm, row_of(x, row), x.width, row_of(x, row));
    if (!angles.data) return;
    cpu::rotate_row(kernels_, transform.layout, row_of(angles, row), angles.width, heads,
                    cache.head_dim, row_of(x, row));
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

void CpuBackend::route(Rows x, RouterKind kind, Routes& routes) {
  check_route(x, routes);
  for_rows(x, kExp * kExp, [&](size_t i) {
    host_routes(routes).route(i, {row_of(x, i), x.width}, kind);
  });
}

void CpuBackend::combine(Rows x, const Routes& routes, Rows out) {
  check_combine(x, routes, out);
  const uint32_t used = routes.used();
  const float* const weights = host_routes(routes).weights.data();
  for_rows(out, used, [&](size_t i) {
    kernels_.combine(row_of(x, i * used), x.stride, weights + i * used, used, out.width,
                     row_of(out, i));
  });
}

void CpuBackend::gather(Rows x, const Step& step, Rows out) {
  const std::span<const uint32_t> rows = host_step(step).logit_rows;
  check_gather(x, rows, out);
  for (size_t i = 0; i < rows.size(); ++i) std::copy_n(row_of(x, rows[i]), x.width, row_of(out, i));
}

void CpuBackend::finish_logits(Rows x, float scale, float softcap) {
  if (scale == 1.0F && softcap == 0.0F) return;
  constexpr size_t kPiece = 4096;  // a single row is worth sharing too
  const size_t pieces = (x.width + kPiece - 1) / kPiece;
  workers_.run(x.rows * pieces, x.rows * x.width * kExp, [&](size_t, size_t item) {
    const size_t first = item % pieces * kPiece;
    kernels_.finish_logits(row_of(x, item / pieces) + first, std::min(kPiece, x.width - first),
                           scale, softcap);
  });
}

}  // namespace

std::unique_ptr<Backend> make_cpu_backend(ComputePool& pool, CpuIsa isa, Precision precision) {
  return std::make_unique<CpuBackend>(pool, isa, precision);
}

Result<std::unique_ptr<Backend>> make_cpu(const BackendOptions& options, ComputePool& pool) {
  SKEIN_ASSIGN(const CpuIsa isa, choose_isa(options.isa));
  return make_cpu_backend(pool, isa, options.precision);
}

}  // namespace skein
