// Backend: the arithmetic of a decoder, as coarse ops on float32 rows for ragged batches over a
// paged KV cache, and the memory that it happens in.
//
//   const Step step = backend.begin(tokens, sequences, logit_rows);
//   backend.run(step, key, [&] { backend.embed(table, step, 1, x); ... });
//   const HostRows logits = backend.read(out);
//
// Ops are queued: one happens after those that were called before it, and read() waits for them. On
// the CPU an op is finished when it returns, read() returns the very memory, and run() calls its
// function, so that the queue costs nothing. Ops read nothing of the host but their parameters:
// what changes from step to step is in the Step, so that a device can record a run once and
// replay it.
//
// Invariants, held by backend_conformance_test for every backend:
// (1) A row's result depends on that row alone (and, in attention, on its sequence's cache): not on
//     the rows beside it, their number, the chunking, or the threads.
// (2) One arithmetic: reference/ defines every result, and every ISA of cpu/ gives the same bits
//     (arithmetic.h says how sums are ordered).
// (3) Nothing beyond a context's length influences anything, whatever a block held before.
// (4) Ops allocate nothing once they have seen their largest shape.
// Shapes are the caller's business and CHECKed. Not thread-safe: one caller at a time. What a
// backend made must not outlive it. A device can be lost: whatever is called then throws
// BackendLost (compute_device.h).
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string_view>
#include <variant>

#include "backend/compute_device.h"
#include "backend/draw.h"
#include "backend/kv.h"
#include "backend/memory.h"
#include "backend/op_params.h"
#include "backend/precision.h"
#include "backend/step.h"
#include "backend/vocabulary_scan.h"
#include "base/function_ref.h"
#include "base/ids.h"
#include "base/status.h"
#include "tensor/quant/affine.h"
#include "tensor/tensor.h"

namespace skein {

// Weights, before and after a backend has made them its own.
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

// Told of bytes of a matrix's views that will not be read again, on the thread that makes it, as it
// goes.
using Consumed = std::function<void(std::span<const std::byte> bytes)>;

// Tokens drawn from rows behind steps that are still under way: they are tokens of the next step
// before anybody on the host knows them. Searches end in the order of their beginnings. It must not
// outlive its backend.
class DrawQueue {
 public:
  virtual ~DrawQueue() = default;
  // Queues a search of every row, behind the ops before it: by the draw of its number, or for the
  // largest where there are none. Keeps to what it was made for.
  virtual void find(Rows rows, std::span<const Draw> draws) = 0;
  // Waits for the oldest search: what VocabularyScan::argmax() says of each of its rows, but for
  // the index, which is the token's that was drawn where the row has one.
  virtual void take(std::span<VocabularyScan::Argmax> out) = 0;
  // How long the device had nothing to do between the search before the one that was taken last
  // and the step of that; 0 where nobody measures it.
  virtual uint64_t pause_ns() const { return 0; }
};

class Backend {
 public:
  virtual ~Backend() = default;

  virtual std::string_view name() const = 0;  // "cpu/avx512"
  // nullptr: the process's own processors.
  virtual std::shared_ptr<const ComputeDevice> device() const { return nullptr; }
  // Whether it has what encoders need: AttentionParams::sees_all and embed_by().
  virtual bool runs_encoders() const { return false; }

  // Memory. What can still be had of it, in bytes.
  virtual uint64_t available() const = 0;
  virtual Result<Buffer> allocate(size_t bytes) = 0;
  virtual void write(Floats to, std::span<const float> from) = 0;
  // Valid until the next op that writes to these rows, or the next read().
  virtual HostRows read(Rows rows) = 0;
  // The largest of each row, as VocabularyScan::argmax() finds it: what the rows hold need not come
  // to the process for it. False: read() and scan() are as fast.
  virtual bool peaks(Rows /*rows*/, std::span<VocabularyScan::Argmax> /*out*/) { return false; }
  // For searches of so many rows of `width` numbers, so many of them at a time. nullptr: ops are
  // finished when they return, or nearly so, and there is nothing to gain.
  virtual Result<std::unique_ptr<DrawQueue>> make_draw_queue(size_t /*rows*/, size_t /*width*/,
                                                             uint32_t /*searches*/) {
    return std::unique_ptr<DrawQueue>();
  }
  // For what was read: as fast as the process can.
  virtual VocabularyScan scan() const = 0;

  // Weights. A matrix is for products, a table for embed(). The views must outlive whatever
  // reads_views(). Errors name the element type.
  virtual Result<std::unique_ptr<Matrix>> make_matrix(std::span<const WeightView> parts,
                                                      const Consumed& consumed) = 0;
  Result<std::unique_ptr<Matrix>> make_matrix(std::span<const WeightView> parts) {
    return make_matrix(parts, [](std::span<const std::byte>) {});
  }
  virtual Result<std::unique_ptr<Matrix>> make_table(std::span<const WeightView> parts) = 0;
  // The bytes that a matrix of these parts will take, by their types and shapes; they are not
  // looked at. 0 for no parts.
  virtual uint64_t matrix_bytes(std::span<const WeightView> parts) const = 0;
  // Those that a table of them takes beside its views; 0 where it goes on reading them.
  virtual uint64_t table_bytes(std::span<const WeightView> parts) const = 0;
  // Lays the next matrices side by side, up to that many bytes of them: without it each may leave
  // some memory unused. kResourceExhausted with the size when it cannot be had.
  virtual Status reserve(uint64_t matrix_bytes) = 0;

  // What else a model needs, made at load. kInvalidArgument for a cache of no blocks,
  // kResourceExhausted with the sizes when memory cannot be had.
  virtual Result<std::unique_ptr<Rope>> make_rope(std::span<const float> frequencies,
                                                  float magnitude) = 0;
  virtual Result<std::unique_ptr<Routes>> make_routes(size_t rows, uint32_t used) = 0;
  virtual Result<std::unique_ptr<KvCache>> make_kv(const KvSpec& spec, uint32_t blocks) = 0;
  virtual uint64_t kv_block_bytes(const KvSpec& spec) const = 0;  // of all layers

  // The step that the next ops are about: a row for each token, the sequences partition the rows in
  // their order. What the spans look at stays as it is until run() has returned. The step is valid
  // until the next begin(); what was queued of it stays queued. A token of ~i is the one that the
  // latest search of `before` finds for its row i; nullptr where no token is such.
  virtual Step begin(std::span<const TokenId> tokens, std::span<const Sequence> sequences,
                     std::span<const uint32_t> logit_rows, const DrawQueue* before) = 0;
  Step begin(std::span<const TokenId> tokens, std::span<const Sequence> sequences,
             std::span<const uint32_t> logit_rows) {
    return begin(tokens, sequences, logit_rows, nullptr);
  }
  // Runs the ops that `ops` calls, or replays them: for steps of the same rows and logits, the same
  // key has to mean the same ops over the same memory. No reads and no writes among them.
  virtual void run(const Step& step, uint64_t key, FunctionRef<void()> ops) = 0;

  // out[i] = scale * table[token i], exact at every precision. Tokens are below table.outputs().
  virtual void embed(const Matrix& table, const Step& step, float scale, Rows out) = 0;
  // out[i] = table[what `fact` says of row i], exact likewise. Facts are below table.outputs().
  virtual void embed_by(RowFact fact, const Matrix& table, const Step& step, Rows out);
  // May work in place.
  virtual void norm(Rows x, const NormParams& params, Rows out) = 0;
  // out = in * matrix^T + bias; bias [outputs] or nullptr. Not in place.
  virtual void linear(const LinearInput& in, const Matrix& matrix, Floats bias, Rows out) = 0;
  // x += scale * delta
  virtual void add(Rows x, Rows delta, float scale) = 0;
  virtual void activate(Rows x, const ActivationParams& params, Rows out) = 0;

  // out[i] = [cos | sin] of float(position i) * frequencies[j], both times the rope's magnitude.
  virtual void rope_angles(const Step& step, const Rope& rope, Rows out) = 0;
  // q and k become what QkTransform says, in place; k and v go into the layer's blocks where their
  // sequence writes; then causal attention of every row over its sequence's blocks, its own
  // position included. k and v are [rows, heads * head_dim] of the cache, q and out
  // [rows, params.heads * head_dim].
  virtual void attend(Rows q, Rows k, Rows v, const QkTransform& transform, const Step& step,
                      KvCache& cache, uint32_t layer, const AttentionParams& params, Rows out) = 0;

  // x: [N, experts] router logits; of the routes the first N rows are set.
  virtual void route(Rows x, RouterKind kind, Routes& routes) = 0;
  // out[i * used + j] = x[i or i * used + j] * experts[e(i, j)]^T + biases[e(i, j)]: the first of
  // the two when x has N rows, the second when it has N * used. `biases` is [experts, outputs] or
  // nullptr.
  virtual void expert_linear(Rows x, std::span<const std::unique_ptr<Matrix>> experts,
                             Floats biases, const Routes& routes, Rows out) = 0;
  // out[i] = sum over j, in order, of weight(i, j) * x[i * used + j].
  virtual void combine(Rows x, const Routes& routes, Rows out) = 0;

  // out[i] = x[logit row i]
  virtual void gather(Rows x, const Step& step, Rows out) = 0;
  // x *= scale, then softcap as in attention (0: none); in place.
  virtual void finish_logits(Rows x, float scale, float softcap) = 0;
};

}  // namespace skein
