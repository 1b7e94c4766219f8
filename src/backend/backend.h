// Backend: the arithmetic of a decoder, as coarse ops on float32 rows for ragged batches over a
// paged KV cache.
//
// A step is N rows: the tokens of R sequences, some of them chunks of a prompt, some single tokens.
// Every op takes all N rows at once and is finished when it returns.
//
// Invariants, held by backend_conformance_test for every backend:
// (1) A row's result depends on that row alone (and, in attention, on its sequence's cache): not on
//     the rows beside it, their number, the chunking, or the threads.
// (2) One arithmetic: reference/ defines every result, and every ISA of cpu/ gives the same bits
//     (arithmetic.h says how sums are ordered).
// (3) Nothing beyond a context's length influences anything, whatever a block held before.
// (4) Ops allocate nothing once they have seen their largest shape.
// Shapes are the caller's business and CHECKed. Not thread-safe: one caller at a time.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string_view>
#include <utility>
#include <variant>

#include "base/ids.h"
#include "base/status.h"
#include "tensor/quant/affine.h"
#include "tensor/tensor.h"

namespace skein {

// What the user chose, never what the batch suggests (arithmetic.h has the definitions).
//   kF32      float32 throughout, for checking
//   kDefault  quantized weights with activations of 8 bits, all others in bfloat16
//   kHigh     weights and activations of products in bfloat16
// All else is float32 in each of them.
enum class Precision : uint8_t { kF32, kDefault, kHigh };

// `rows` rows of `width` floats in backend memory, `stride` floats apart. A part of the columns of
// a view is a view.
struct Rows {
  float* data = nullptr;
  size_t rows = 0;
  size_t width = 0;
  size_t stride = 0;

  float* row(size_t i) const { return data + i * stride; }
  Rows columns(size_t first, size_t count) const { return {data + first, rows, count, stride}; }
  Rows first(size_t count) const { return {data, count, width, stride}; }
};

// A matrix as a file has it: [N outputs, K inputs].
using WeightView = std::variant<TensorView, AffineView>;

// The same after the backend has made it its own: the parts that were given, one below the other,
// each of its own definition (arithmetic.h), which the element type and the backend's precision
// decide.
class Matrix {
 public:
  virtual ~Matrix() = default;
  size_t outputs() const { return outputs_; }
  size_t inputs() const { return inputs_; }
  uint64_t bytes() const { return bytes_; }  // that a multiplication reads
  // Whether it goes on reading the views it was made of; if not, they may go.
  bool reads_views() const { return reads_views_; }

 protected:
  Matrix(size_t outputs, size_t inputs, uint64_t bytes, bool reads_views)
      : outputs_(outputs), inputs_(inputs), bytes_(bytes), reads_views_(reads_views) {}

 private:
  size_t outputs_, inputs_;
  uint64_t bytes_;
  bool reads_views_;
};

// Backend memory, zeroed, aligned to 64 bytes at least, in huge pages where it is large and they
// can be had. Pages are taken when they are first touched.
class Buffer {
 public:
  using Free = void (*)(void* data, size_t bytes);
  Buffer() = default;
  Buffer(void* data, size_t bytes, Free free) : data_(data), bytes_(bytes), free_(free) {}
  Buffer(Buffer&& other) noexcept { swap(other); }
  Buffer& operator=(Buffer&& other) noexcept {
    Buffer(std::move(other)).swap(*this);
    return *this;
  }
  ~Buffer() {
    if (data_ != nullptr) free_(data_, bytes_);
  }

  std::byte* data() const { return static_cast<std::byte*>(data_); }
  float* floats() const { return static_cast<float*>(data_); }
  size_t bytes() const { return bytes_; }

 private:
  void swap(Buffer& other) {
    std::swap(data_, other.data_);
    std::swap(bytes_, other.bytes_);
    std::swap(free_, other.free_);
  }
  void* data_ = nullptr;
  size_t bytes_ = 0;
  Free free_ = nullptr;
};

// How a cache keeps keys and values: as they are, rounded to the nearest bfloat16, or as integers
// of 8 bits with a scale for each token and head.
enum class KvType : uint8_t { kF32, kBf16, kInt8 };
// Where nobody says otherwise.
constexpr KvType default_kv_type(Precision precision) {
  return precision == Precision::kDefault ? KvType::kBf16 : KvType::kF32;
}

// One layer of a paged cache. Block b, head h holds its keys, then as many bytes of values:
//   kF32   keys [head_dim][kBlockTokens] (a token is a column), values [kBlockTokens][head_dim]
//   kBf16  vectors of 16 pairs: keys [half of the tokens][pair of dimensions][16 tokens][2], values
//          [16 dimensions][pair of tokens][each of the 16][2]
//   kInt8  vectors of 16: keys [half of the tokens][dimension][16 tokens], values
//          [16 dimensions][token][each of the 16], each followed by [kBlockTokens] float scales
// Of the last two, dimensions are filled up to a multiple of 16; nobody reads what is there.
struct KvLayer {
  std::byte* data = nullptr;  // of block 0
  size_t block_bytes = 0;     // from a block to the next
  uint32_t heads = 0;
  uint32_t head_dim = 0;
  KvType type = KvType::kF32;

  // Elements of the keys of one head of one block; the values have as many.
  static size_t half_elements(uint32_t head_dim, KvType type) {
    const size_t dims = type == KvType::kF32 ? head_dim : (size_t{head_dim} + 15) / 16 * 16;
    return kBlockTokens * dims;
  }
  static size_t element_bytes(KvType type) {
    return type == KvType::kF32 ? 4 : type == KvType::kBf16 ? 2 : 1;
  }
  static size_t half_bytes(uint32_t head_dim, KvType type) {
    const size_t scales = type == KvType::kInt8 ? kBlockTokens * sizeof(float) : 0;
    return half_elements(head_dim, type) * element_bytes(type) + scales;
  }
  static size_t head_bytes(uint32_t head_dim, KvType type) {
    return 2 * half_bytes(head_dim, type);
  }
  std::byte* head(BlockId block, uint32_t h) const {
    return data + block.value * block_bytes + h * head_bytes(head_dim, type);
  }
  // The place of an element in its head, in elements. `slot` is a token's place in its block.
  size_t key_index(uint32_t slot, uint32_t d) const {
    const size_t dims = half_elements(head_dim, type) / kBlockTokens;
    if (type == KvType::kF32) return size_t{d} * kBlockTokens + slot;
    if (type == KvType::kInt8) return (slot / 16 * dims + d) * 16 + slot % 16;
    return (slot / 16 * (dims / 2) + d / 2) * 32 + slot % 16 * 2 + d % 2;
  }
  size_t value_index(uint32_t slot, uint32_t d) const {
    const size_t values = half_bytes(head_dim, type) / element_bytes(type);
    if (type == KvType::kF32) return values + size_t{slot} * head_dim + d;
    if (type == KvType::kInt8) {
      return values + (size_t{d} / 16 * kBlockTokens + slot) * 16 + d % 16;
    }
    return values + (size_t{d} / 16 * (kBlockTokens / 2) + slot / 2) * 32 + d % 16 * 2 + slot % 2;
  }
  // Of kInt8, the places of a token's two scales, in floats.
  size_t key_scale_index(uint32_t slot) const {
    return half_elements(head_dim, type) / sizeof(float) + slot;
  }
  size_t value_scale_index(uint32_t slot) const {
    return half_bytes(head_dim, type) / sizeof(float) + key_scale_index(slot);
  }
};

// Rows [first_row, first_row + rows) of the step are positions [start, start + rows) of one
// sequence.
struct Sequence {
  uint32_t first_row = 0;
  uint32_t rows = 0;
  uint32_t start = 0;
  bool writes_kv = true;            // false: the cache holds these positions already
  std::span<const BlockId> blocks;  // cover start + rows tokens
};

enum class NormKind : uint8_t { kRms, kLayer };

struct NormParams {
  NormKind kind = NormKind::kRms;
  float epsilon = 0;
  const float* weight = nullptr;  // [width]; nullptr: all ones
  const float* bias = nullptr;    // [width]; nullptr: none
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
  float softcap = 0;             // 0: none; else s = softcap * tanh(s / softcap)
  uint32_t window = 0;           // 0: none; else position p sees (p - window, p]
  const float* sinks = nullptr;  // [heads] logits that take part in the softmax and carry no value
};

enum class Activation : uint8_t {
  kSiluGated,      // [gate | up] -> silu(gate) * up
  kGeluTanhGated,  // [gate | up] -> gelu(gate) * up, tanh form
  kGeluTanh,       // x -> gelu(x), tanh form
  kSwigluClamped,  // [gate | up]; gate <= limit, |up| <= limit; gate * sigmoid(alpha * gate) * (up
                   // + 1)
};

struct ActivationParams {
  Activation kind = Activation::kSiluGated;
  float alpha = 0;  // of kSwigluClamped
  float limit = 0;

  bool gated() const { return kind != Activation::kGeluTanh; }
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

// What queries and keys go through before they meet: norms, then rope.
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

// Which experts a row goes to: `used` of them a row, best first (the lower number first among
// equals). Rows x used entries.
struct Routes {
  uint32_t used = 0;
  std::span<uint32_t> experts;
  std::span<float> weights;
};

// Told of bytes of a matrix's views that will not be read again, on the thread that makes it, as it
// goes.
using Consumed = std::function<void(std::span<const std::byte> bytes)>;

class Backend {
 public:
  virtual ~Backend() = default;

  virtual std::string_view name() const = 0;  // "cpu/avx512"

  // Memory and weights. A matrix is for products, a table for embed(). The backend must outlive
  // both, and the views whatever reads_views(). Errors name the element type.
  virtual Result<Buffer> allocate(size_t bytes) = 0;
  virtual Result<std::unique_ptr<Matrix>> make_matrix(std::span<const WeightView> parts,
                                                      const Consumed& consumed) = 0;
  Result<std::unique_ptr<Matrix>> make_matrix(std::span<const WeightView> parts) {
    return make_matrix(parts, [](std::span<const std::byte>) {});
  }
  virtual Result<std::unique_ptr<Matrix>> make_table(std::span<const WeightView> parts) = 0;
  // What a part will take in a matrix, by its type and shape; its bytes are not looked at.
  virtual uint64_t matrix_bytes(const WeightView& part) const = 0;
  // Lays the next matrices side by side, up to that many bytes of them: without it each may leave
  // some memory unused. kResourceExhausted with the size when it cannot be had.
  virtual Status reserve(uint64_t matrix_bytes) = 0;
  virtual void write(float* to, std::span<const float> from) = 0;  // host to backend memory
  virtual void read(std::span<float> to, const float* from) = 0;   // and back

  // out[i] = scale * table[ids[i]], exact at every precision. The ids are below table.outputs().
  virtual void embed(const Matrix& table, std::span<const TokenId> ids, float scale, Rows out) = 0;
  // May work in place.
  virtual void norm(Rows x, const NormParams& params, Rows out) = 0;
  // out = in * matrix^T + bias; bias [outputs] or nullptr. Not in place.
  virtual void linear(const LinearInput& in, const Matrix& matrix, const float* bias, Rows out) = 0;
  // x += scale * delta
  virtual void add(Rows x, Rows delta, float scale) = 0;
  virtual void activate(Rows x, const ActivationParams& params, Rows out) = 0;

  // out[i] = [cos | sin] of float(position) * frequencies[j], both times `magnitude`.
  virtual void rope_angles(std::span<const uint32_t> positions, std::span<const float> frequencies,
                           float magnitude, Rows out) = 0;
  // Turns the first angles.width elements of each of `heads` heads of x, in place.
  virtual void rope(Rows x, uint32_t heads, RopeLayout layout, Rows angles) = 0;

  // Writes the rows of sequences that write; k and v are [N, heads * head_dim].
  virtual void kv_store(Rows k, Rows v, std::span<const Sequence> sequences,
                        const KvLayer& cache) = 0;
  // Causal attention of every row over its sequence's cache, its own position included.
  // q and out are [N, params.heads * head_dim].
  virtual void attention(Rows q, std::span<const Sequence> sequences, const KvLayer& cache,
                         const AttentionParams& params, Rows out) = 0;

  // norm() and rope() of q and k, in place, kv_store() and attention() in one; the sequences cover
  // all rows.
  virtual void attend(Rows q, Rows k, Rows v, const QkTransform& transform,
                      std::span<const Sequence> sequences, const KvLayer& cache,
                      const AttentionParams& params, Rows out) = 0;

  // x: [N, experts] router logits.
  virtual void route(Rows x, RouterKind kind, Routes routes) = 0;
  // out[i * used + j] = x[i or i * used + j] * experts[e(i, j)]^T + biases[e(i, j)]: the first of
  // the two when x has N rows, the second when it has N * used. `biases` is [experts, outputs] or
  // nullptr.
  virtual void expert_linear(Rows x, std::span<const std::unique_ptr<Matrix>> experts,
                             const float* biases, const Routes& routes, Rows out) = 0;
  // out[i] = sum over j, in order, of weight(i, j) * x[i * used + j].
  virtual void combine(Rows x, const Routes& routes, Rows out) = 0;

  // out[i] = x[rows[i]]
  virtual void gather(Rows x, std::span<const uint32_t> rows, Rows out) = 0;
  // x *= scale, then softcap as in attention (0: none); in place.
  virtual void finish_logits(Rows x, float scale, float softcap) = 0;
};

}  // namespace skein
