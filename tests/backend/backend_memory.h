// Rows of a test, and a backend with the memory that a test gives it: everything goes in by write()
// and comes back by read(), so that the memory may be another device's.
#pragma once

#include <algorithm>
#include <gtest/gtest.h>
#include <limits>
#include <memory>
#include <span>
#include <utility>
#include <vector>

#include "backend/backend.h"
#include "backend/random_weights.h"
#include "base/rng.h"

namespace skein {

// Rows in host memory, with a stride larger than their width; what lies between rows is NaN, which
// shows when it is read.
class OwnedRows {
 public:
  OwnedRows(size_t rows, size_t width, size_t gap = 3)
      : memory_(rows * (width + gap) + kOffset, std::numeric_limits<float>::quiet_NaN()),
        rows_(rows),
        width_(width),
        stride_(width + gap) {}
  static OwnedRows random(size_t rows, size_t width, Rng& rng, float range = 1) {
    OwnedRows made(rows, width);
    for (size_t i = 0; i < rows; ++i) {
      for (size_t k = 0; k < width; ++k) made.at(i)[k] = range * random_float(rng);
    }
    return made;
  }
  static OwnedRows filled(size_t rows, size_t width, float value) {
    OwnedRows made(rows, width);
    for (size_t i = 0; i < rows; ++i) std::fill_n(made.at(i), width, value);
    return made;
  }

  size_t rows() const { return rows_; }
  size_t width() const { return width_; }
  size_t stride() const { return stride_; }
  float* at(size_t i) { return memory_.data() + kOffset + i * stride_; }
  std::vector<float> row(size_t i) const {
    const auto begin = memory_.begin() + static_cast<std::ptrdiff_t>(kOffset + i * stride_);
    return {begin, begin + static_cast<std::ptrdiff_t>(width_)};
  }
  // Rows [first, first + count).
  OwnedRows part(size_t first, size_t count) const {
    OwnedRows made(count, width_, stride_ - width_);
    std::copy_n(memory_.begin() + static_cast<std::ptrdiff_t>(kOffset + first * stride_),
                count * stride_, made.memory_.begin() + kOffset);
    return made;
  }
  // All of it, the gaps included.
  std::vector<float>& all() { return memory_; }
  const std::vector<float>& all() const { return memory_; }

  static constexpr size_t kOffset = 1;  // unaligned

 private:
  std::vector<float> memory_;
  size_t rows_, width_, stride_;
};

class TestBackend {
 public:
  explicit TestBackend(std::unique_ptr<Backend> backend) : backend_(std::move(backend)) {}

  Backend& operator*() const { return *backend_; }
  Backend* operator->() const { return backend_.get(); }

  // What was uploaded stays until clear().
  Floats up(std::span<const float> values) {
    auto memory = backend_->allocate(values.size_bytes());
    EXPECT_TRUE(memory.ok()) << memory.message();
    backend_->write(memory->floats(), values);
    memory_.push_back(std::move(*memory));
    return memory_.back().floats();
  }
  Rows up(const OwnedRows& x) {
    return {up(x.all()) + OwnedRows::kOffset, x.rows(), x.width(), x.stride()};
  }
  // Rows that were uploaded, into what they were uploaded from.
  void down(Rows from, OwnedRows& to) {
    // One long row from the first: the gaps are seen too, so that an op that writes there is found.
    const size_t floats = to.all().size() - OwnedRows::kOffset;
    const HostRows all = backend_->read({from.data, 1, floats, floats});
    std::copy_n(all.data, floats, to.all().begin() + OwnedRows::kOffset);
  }
  OwnedRows down(Rows from) {
    OwnedRows to(from.rows, from.width, from.stride - from.width);
    down(from, to);
    return to;
  }
  void clear() { memory_.clear(); }

  // A step of these sequences, of tokens that do not matter.
  Step begin(std::span<const Sequence> sequences) {
    size_t rows = 0;
    for (const Sequence& sequence : sequences) rows += sequence.rows;
    tokens_.assign(rows, 0);
    return backend_->begin(tokens_, sequences, {});
  }
  // A step of one sequence.
  Step begin(std::span<const TokenId> tokens, std::span<const uint32_t> logit_rows = {}) {
    blocks_.assign(blocks_for(tokens.size()), BlockId{0});
    sequence_ = {0, static_cast<uint32_t>(tokens.size()), 0, true, blocks_};
    return backend_->begin(tokens, {&sequence_, 1}, logit_rows);
  }
  // Backend::attend as a step of its own.
  void attend(Rows q, Rows k, Rows v, const QkTransform& transform,
              std::span<const Sequence> sequences, KvCache& cache, const AttentionParams& params,
              Rows out) {
    const Step step = begin(sequences);
    backend_->run(step, ++key_,
                  [&] { backend_->attend(q, k, v, transform, step, cache, 0, params, out); });
  }

  std::unique_ptr<Matrix> matrix(std::vector<WeightView> parts) {
    auto made = backend_->make_matrix(parts);
    EXPECT_TRUE(made.ok()) << made.message();
    return std::move(*made);
  }
  std::unique_ptr<Matrix> table(std::vector<WeightView> parts) {
    auto made = backend_->make_table(parts);
    EXPECT_TRUE(made.ok()) << made.message();
    return std::move(*made);
  }
  // Routes of as many rows as the logits have.
  std::unique_ptr<Routes> routes(const OwnedRows& logits, RouterKind kind, uint32_t used) {
    auto made = backend_->make_routes(logits.rows(), used);
    EXPECT_TRUE(made.ok()) << made.message();
    backend_->route(up(logits), kind, **made);
    return std::move(*made);
  }

 private:
  std::unique_ptr<Backend> backend_;
  std::vector<Buffer> memory_;
  std::vector<TokenId> tokens_;
  std::vector<BlockId> blocks_;
  Sequence sequence_;
  uint64_t key_ = 0;
};

}  // namespace skein
