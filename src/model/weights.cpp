#include "model/weights.h"

#include <algorithm>
#include <cstring>
#include <span>
#include <utility>

#include "backend/weight_parts.h"
#include "tensor/dequantize.h"
#include "tensor/tensor.h"

namespace skein {
namespace {

// The experts of gpt-oss folders are repacked into matrices [N, K] as all others are; values are
// moved, never changed. Rows of gate and up alternate in these files; a matrix has all of gate,
// then all of up.
enum class RowOrder : uint8_t { kPlain, kAlternating };

constexpr size_t kHalf = 16;  // bytes of a block's elements
constexpr size_t kMxfp4Bytes = 1 + kHalf;

// Element j of a block whose bytes hold neighbours.
uint8_t neighbour(const std::byte* block, size_t j) {
  return static_cast<uint8_t>(block[j / 2]) >> (j % 2 * 4) & 0xf;
}

// The row of the file that becomes row `row` of `rows`.
uint64_t source_row(RowOrder order, uint64_t row, uint64_t rows) {
  if (order == RowOrder::kPlain) return row;
  const uint64_t half = rows / 2;
  return row < half ? 2 * row : 2 * (row - half) + 1;
}

// Expert `expert` of F32, F16 or BF16 [experts, K, N], as [N, K] of the same type.
std::vector<std::byte> transposed_expert(const TensorView& all, uint64_t expert, RowOrder order) {
  const uint64_t inputs = all.shape[1];
  const uint64_t outputs = all.shape[2];
  const size_t size = info(all.type).block_bytes;
  const std::byte* from = all.bytes.data() + expert * inputs * outputs * size;
  std::vector<std::byte> out(inputs * outputs * size);
  for (uint64_t row = 0; row < outputs; ++row) {
    const uint64_t column = source_row(order, row, outputs);
    for (uint64_t k = 0; k < inputs; ++k) {
      std::memcpy(&out[(row * inputs + k) * size], from + (k * outputs + column) * size, size);
    }
  }
  return out;
}

// Expert `expert` of U8 blocks [experts, N, K / 32, 16] and scales [experts, N, K / 32], as MXFP4
// [N, K]. A byte of the file holds elements 2i and 2i + 1; one of GGUF's holds i and i + 16.
std::vector<std::byte> mxfp4_expert(const TensorView& blocks, const TensorView& scales,
                                    uint64_t expert, RowOrder order) {
  const uint64_t rows = blocks.shape[1];
  const uint64_t per_row = blocks.shape[2];
  std::vector<std::byte> out(rows * per_row * kMxfp4Bytes);
  std::byte* to = out.data();
  for (uint64_t row = 0; row < rows; ++row) {
    const uint64_t first = (expert * rows + source_row(order, row, rows)) * per_row;
    for (uint64_t b = first; b < first + per_row; ++b, to += kMxfp4Bytes) {
      const std::byte* from = blocks.bytes.data() + b * kHalf;
      to[0] = scales.bytes[b];
      for (size_t j = 0; j < kHalf; ++j) {
        to[1 + j] = std::byte(neighbour(from, j) | neighbour(from, j + kHalf) << 4);
      }
    }
  }
  return out;
}

constexpr size_t kChunkFloats = size_t{1} << 18;
constexpr size_t kAlignFloats = 16;

// Bytes of matrices in the file.
struct FileBytes {
  uint64_t operator()(std::span<const WeightView> parts) const {
    uint64_t bytes = 0;
    for (const WeightView& part : parts) bytes += bytes_of(part);
    return bytes;
  }
  uint64_t operator()(const ExpertTensors& tensors) const {
    uint64_t bytes = tensors.values.bytes.size() + tensors.scales.bytes.size();
    for (const auto& parts : tensors.experts) bytes += (*this)(parts);
    return bytes;
  }
};

// In memory.
struct PackedBytes {
  const Backend& backend;

  uint64_t operator()(std::span<const WeightView> parts) const {
    return backend.matrix_bytes(parts);
  }
  uint64_t operator()(const ExpertTensors& tensors) const {
    uint64_t bytes = 0;
    for (const auto& parts : tensors.experts) bytes += (*this)(parts);
    const Shape& shape = tensors.values.shape;
    if (tensors.packing == ExpertPacking::kMxfp4) {
      const WeightView one = TensorView{ElementType::kMXFP4, {shape[1], shape[2] * 32}, {}};
      bytes += shape[0] * backend.matrix_bytes({&one, 1});
    } else if (tensors.packing == ExpertPacking::kTransposed) {
      const WeightView one = TensorView{tensors.values.type, {shape[2], shape[1]}, {}};
      bytes += shape[0] * backend.matrix_bytes({&one, 1});
    }
    return bytes;
  }
};

// The parts of the output matrix; an encoder has none.
std::span<const WeightView> head_of(const ModelTensors& tensors) {
  if (!tensors.positions.parts.empty()) return {};
  return tensors.head.parts.empty() ? tensors.embedding.parts : tensors.head.parts;
}

template <class Count>
uint64_t sum_of_matrices(const ModelTensors& tensors, const Count& count) {
  uint64_t bytes = count(head_of(tensors));
  for (const LayerTensors& layer : tensors.layers) {
    for (const LinearTensors* linear :
         {&layer.qkv, &layer.o, &layer.gate_up, &layer.down, &layer.router}) {
      bytes += count(linear->parts);
    }
    bytes += count(layer.expert_gate_up) + count(layer.expert_down);
  }
  return bytes;
}

class Maker {
 public:
  Maker(const ModelDescription& description, const WeightSource& source, Backend& backend,
        const LoadReport& report)
      : spec_(description.spec),
        names_(description.names),
        source_(source),
        backend_(backend),
        report_(report) {}

  Result<Weights> make(const ModelTensors& tensors);

 private:
  Result<std::unique_ptr<Matrix>> matrix(std::span<const WeightView> parts);
  Result<Linear> linear(const LinearTensors& tensors);
  Result<Norm> norm(const NormTensors& tensors);
  Result<Experts> experts(const ExpertTensors& tensors, RowOrder order);
  Result<std::unique_ptr<Matrix>> repacked(const ExpertTensors& tensors, uint64_t expert,
                                           RowOrder order);
  Result<Floats> expert_biases(const ExpertTensors& tensors, RowOrder order);
  Result<Floats> floats(std::span<const TensorView> parts, float plus = 0);
  Result<Floats> keep(std::span<const float> values);
  Status layer(const LayerTensors& tensors, LayerWeights& out);
  void consume(std::span<const std::byte> bytes);

  const ModelSpec& spec_;
  const TensorNames& names_;
  const WeightSource& source_;
  Backend& backend_;
  const LoadReport& report_;
  uint64_t done_ = 0, all_ = 0;  // bytes of matrices
  Weights weights_;
  size_t chunk_used_ = kChunkFloats;  // of the last buffer
};

// Small vectors share buffers.
Result<Floats> Maker::keep(std::span<const float> values) {
  const size_t needed = (values.size() + kAlignFloats - 1) / kAlignFloats * kAlignFloats;
  const bool fits = !weights_.parameters.empty() &&
                    chunk_used_ + needed <= weights_.parameters.back().bytes() / sizeof(float);
  if (!fits) {
    SKEIN_ASSIGN(Buffer chunk, backend_.allocate(std::max(needed, kChunkFloats) * sizeof(float)));
    weights_.parameters.push_back(std::move(chunk));
    chunk_used_ = 0;
  }
  const Floats to = weights_.parameters.back().floats() + chunk_used_;
  chunk_used_ += needed;
  backend_.write(to, values);
  return to;
}

Result<Floats> Maker::floats(std::span<const TensorView> parts, float plus) {
  if (parts.empty()) return Floats();
  std::vector<float> values;
  for (const TensorView& part : parts) {
    const size_t first = values.size();
    values.resize(first + part.elements());
    dequantize(part.type, part.bytes, std::span(values).subspan(first));
  }
  for (float& value : values) value += plus;
  return keep(values);
}

Result<std::unique_ptr<Matrix>> Maker::matrix(std::span<const WeightView> parts) {
  return backend_.make_matrix(parts, [this](std::span<const std::byte> bytes) { consume(bytes); });
}

// What was copied is not read from the file again: giving its pages back at once keeps the memory
// that loading takes near that of the weights.
void Maker::consume(std::span<const std::byte> bytes) {
  source_.release(bytes);
  done_ += bytes.size();
  if (report_) report_(done_, all_);
}

Result<Linear> Maker::linear(const LinearTensors& tensors) {
  Linear out;
  if (tensors.parts.empty()) return out;
  SKEIN_ASSIGN(out.matrix, matrix(tensors.parts));
  SKEIN_ASSIGN(out.bias, floats(tensors.biases));
  return out;
}

Result<Norm> Maker::norm(const NormTensors& tensors) {
  Norm out;
  SKEIN_ASSIGN(out.weight, floats(tensors.weight, names_.norms_minus_one ? 1.0F : 0.0F));
  if (tensors.bias) {
    SKEIN_ASSIGN(out.bias, floats({&*tensors.bias, 1}));
  }
  return out;
}

Result<std::unique_ptr<Matrix>> Maker::repacked(const ExpertTensors& tensors, uint64_t expert,
                                                RowOrder order) {
  const bool is_mxfp4 = tensors.packing == ExpertPacking::kMxfp4;
  const TensorView& values = tensors.values;
  const Shape shape = is_mxfp4 ? Shape{values.shape[1], values.shape[2] * 32}
                               : Shape{values.shape[2], values.shape[1]};
  std::vector<std::byte> bytes = is_mxfp4 ? mxfp4_expert(values, tensors.scales, expert, order)
                                          : transposed_expert(values, expert, order);
  const WeightView view = TensorView{is_mxfp4 ? ElementType::kMXFP4 : values.type, shape, bytes};
  SKEIN_ASSIGN(std::unique_ptr<Matrix> made, backend_.make_matrix({&view, 1}));
  if (made->reads_views()) weights_.repacked.push_back(std::move(bytes));  // the bytes stay put
  for (const TensorView& tensor : {values, tensors.scales}) {
    const size_t each = tensor.bytes.size() / spec_.experts->count;
    consume(tensor.bytes.subspan(expert * each, each));
  }
  return made;
}

// [experts, N] of every part side by side, rows in the order of the matrices'.
Result<Floats> Maker::expert_biases(const ExpertTensors& tensors, RowOrder order) {
  if (tensors.biases.empty()) return Floats();
  const uint64_t count = spec_.experts->count;
  std::vector<float> values;
  std::vector<float> row;
  for (uint64_t e = 0; e < count; ++e) {
    for (const TensorView& part : tensors.biases) {
      row.resize(part.shape[1]);
      dequantize(part.type, part.row(e), row);
      for (uint64_t i = 0; i < row.size(); ++i) {
        values.push_back(row[source_row(order, i, row.size())]);
      }
    }
  }
  return keep(values);
}

Result<Experts> Maker::experts(const ExpertTensors& tensors, RowOrder order) {
  Experts out;
  const bool as_is =
      tensors.packing == ExpertPacking::kSeparate || tensors.packing == ExpertPacking::kStacked;
  for (uint64_t e = 0; e < spec_.experts->count; ++e) {
    SKEIN_ASSIGN(auto matrix, as_is ? matrix(tensors.experts[e]) : repacked(tensors, e, order));
    out.matrices.push_back(std::move(matrix));
  }
  SKEIN_ASSIGN(out.biases, expert_biases(tensors, as_is ? RowOrder::kPlain : order));
  return out;
}

Status Maker::layer(const LayerTensors& tensors, LayerWeights& out) {
  SKEIN_ASSIGN(out.attention_norm, norm(tensors.attention_norm));
  SKEIN_ASSIGN(out.post_attention_norm, norm(tensors.post_attention_norm));
  SKEIN_ASSIGN(out.ffn_norm, norm(tensors.ffn_norm));
  SKEIN_ASSIGN(out.post_ffn_norm, norm(tensors.post_ffn_norm));
  SKEIN_ASSIGN(out.q_norm, norm(tensors.q_norm));
  SKEIN_ASSIGN(out.k_norm, norm(tensors.k_norm));
  SKEIN_ASSIGN(out.qkv, linear(tensors.qkv));
  SKEIN_ASSIGN(out.o, linear(tensors.o));
  SKEIN_ASSIGN(out.gate_up, linear(tensors.gate_up));
  SKEIN_ASSIGN(out.down, linear(tensors.down));
  if (tensors.sinks) {
    SKEIN_ASSIGN(out.sinks, floats({&*tensors.sinks, 1}));
  }
  if (tensors.router.parts.empty()) return ok_status();
  SKEIN_ASSIGN(out.router, linear(tensors.router));
  SKEIN_ASSIGN(out.expert_gate_up, experts(tensors.expert_gate_up, RowOrder::kAlternating));
  SKEIN_ASSIGN(out.expert_down, experts(tensors.expert_down, RowOrder::kPlain));
  return ok_status();
}

Result<Weights> Maker::make(const ModelTensors& tensors) {
  SKEIN_TRY(backend_.reserve(sum_of_matrices(tensors, PackedBytes{backend_})));
  all_ = sum_of_matrices(tensors, FileBytes());
  if (report_) report_(0, all_);
  weights_.tied = tensors.head.parts.empty();
  SKEIN_ASSIGN(weights_.embedding, backend_.make_table(tensors.embedding.parts));
  if (spec_.encoder) {
    SKEIN_ASSIGN(weights_.positions, backend_.make_table(tensors.positions.parts));
    SKEIN_ASSIGN(weights_.types, backend_.make_table(tensors.types.parts));
    SKEIN_ASSIGN(weights_.embedding_norm, norm(tensors.embedding_norm));
  } else {
    SKEIN_ASSIGN(weights_.head, matrix(head_of(tensors)));
    SKEIN_ASSIGN(weights_.final_norm, norm(tensors.final_norm));
  }
  for (const RopeSpec& rope : spec_.ropes) {
    SKEIN_ASSIGN(auto made, backend_.make_rope(rope.frequencies, rope.magnitude));
    weights_.ropes.push_back(std::move(made));
  }
  weights_.layers.resize(tensors.layers.size());
  for (size_t i = 0; i < tensors.layers.size(); ++i) {
    SKEIN_TRY(layer(tensors.layers[i], weights_.layers[i]));
    source_.release();  // reading a tensor takes pages of its neighbours too
  }
  return std::move(weights_);
}

uint64_t bytes_of(const Linear& linear) {
  return linear.matrix ? linear.matrix->bytes() : 0;
}

uint64_t bytes_of(const Experts& experts, uint64_t used) {
  return experts.matrices.empty() ? 0 : used * experts.matrices[0]->bytes();
}

}  // namespace

Result<Weights> make_weights(const ModelTensors& tensors, const ModelDescription& description,
                             const WeightSource& source, Backend& backend,
                             const LoadReport& report) {
  return Maker(description, source, backend, report).make(tensors);
}

uint64_t memory_for(const ModelTensors& tensors, const Backend& backend) {
  // One that reads the file's own bytes needs them in memory, unless the head has them there.
  uint64_t table = backend.table_bytes(tensors.embedding.parts);
  const bool head_is_table = tensors.head.parts.empty() && tensors.positions.parts.empty();
  if (table == 0 && !head_is_table) table = FileBytes()(tensors.embedding.parts);
  // An encoder's other tables are read so.
  table += FileBytes()(tensors.positions.parts) + FileBytes()(tensors.types.parts);
  return sum_of_matrices(tensors, PackedBytes{backend}) + table;
}

uint64_t bytes_per_row(const Weights& weights, const ModelSpec& spec) {
  const uint64_t used = spec.experts ? spec.experts->used : 0;
  uint64_t bytes = weights.head ? weights.head->bytes() : 0;
  if (!weights.tied || !weights.head)
    bytes += weights.embedding->bytes() / weights.embedding->outputs();
  for (const LayerWeights& layer : weights.layers) {
    for (const Linear* linear :
         {&layer.qkv, &layer.o, &layer.gate_up, &layer.down, &layer.router}) {
      bytes += bytes_of(*linear);
    }
    bytes += bytes_of(layer.expert_gate_up, used) + bytes_of(layer.expert_down, used);
  }
  return bytes;
}

}  // namespace skein
