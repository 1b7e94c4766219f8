// A loaded model and a cache, for tests: feeds tokens in any chunks and gives logits back.
#pragma once

#include <gtest/gtest.h>
#include <memory>
#include <numeric>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "backend/cpu/cpu_backend.h"
#include "backend/reference/reference_backend.h"
#include "backend/registry.h"
#include "base/compute_pool.h"
#include "format/weight_source.h"
#include "model/decoder.h"

namespace skein::testing {

// A sequence that tests feed: its blocks, and how far it has come.
struct Feed {
  std::vector<BlockId> blocks;
  uint32_t computed = 0;
};

class Runner {
 public:
  static constexpr uint32_t kRows = 160;
  static constexpr uint32_t kBlocks = 64;

  enum class Arithmetic : uint8_t { kCpu, kCpuThreads, kReference, kCuda, kHopper };

  Runner(const std::string& path, Precision precision, Arithmetic arithmetic = Arithmetic::kCpu)
      : Runner(path, precision, default_kv_type(precision), arithmetic) {}
  Runner(const std::string& path, Precision precision, KvType kv_type,
         Arithmetic arithmetic = Arithmetic::kCpu)
      : threads_(arithmetic == Arithmetic::kCpuThreads ? 2 : 1),
        status_(load(path, precision, kv_type, arithmetic)) {}

  const Status& status() const { return status_; }
  Backend& backend() { return *backend_; }
  Decoder& decoder() { return *decoder_; }
  KvCache& cache() { return *cache_; }

  // Blocks first, first + 1, ... for that many tokens.
  static Feed feed(uint32_t tokens, uint32_t first = 0) {
    Feed out;
    for (uint64_t i = 0; i < blocks_for(tokens); ++i) {
      out.blocks.push_back(BlockId(first + static_cast<uint32_t>(i)));
    }
    return out;
  }

  // One step of several feeds; the logits of all rows, in order.
  std::vector<std::vector<float>> step(std::span<Feed* const> feeds,
                                       std::span<const std::span<const TokenId>> chunks) {
    size_t rows = 0;
    for (const auto chunk : chunks) rows += chunk.size();
    std::vector<uint32_t> wanted(rows);
    std::iota(wanted.begin(), wanted.end(), 0);
    return forward(feeds, chunks, wanted);
  }
  std::vector<std::vector<float>> step(Feed& feed, std::span<const TokenId> chunk) {
    Feed* feeds[] = {&feed};
    return step(feeds, std::span(&chunk, 1));
  }
  // The logits of row `first` and those after it.
  std::vector<std::vector<float>> step_from(Feed& feed, std::span<const TokenId> chunk,
                                            size_t first) {
    Feed* feeds[] = {&feed};
    std::vector<uint32_t> wanted(chunk.size() - first);
    std::iota(wanted.begin(), wanted.end(), static_cast<uint32_t>(first));
    return forward(feeds, std::span(&chunk, 1), wanted);
  }

  // The hidden states of all rows.
  std::vector<std::vector<float>> hidden(Feed& feed, std::span<const TokenId> chunk) {
    const auto rows = static_cast<uint32_t>(chunk.size());
    const Sequence sequence{.first_row = 0,
                            .rows = rows,
                            .start = feed.computed,
                            .writes_kv = true,
                            .blocks = feed.blocks};
    feed.computed += rows;
    decoder_->forward({chunk, {&sequence, 1}, {}, true}, *cache_);
    return copy(backend_->read(decoder_->hidden(rows)));
  }

 private:
  static std::vector<std::vector<float>> copy(const HostRows& rows) {
    std::vector<std::vector<float>> out;
    for (size_t i = 0; i < rows.rows; ++i) out.emplace_back(rows.row(i).begin(), rows.row(i).end());
    return out;
  }
  std::vector<std::vector<float>> forward(std::span<Feed* const> feeds,
                                          std::span<const std::span<const TokenId>> chunks,
                                          std::span<const uint32_t> wanted) {
    std::vector<TokenId> tokens;
    std::vector<Sequence> sequences;
    for (size_t i = 0; i < feeds.size(); ++i) {
      const auto rows = static_cast<uint32_t>(chunks[i].size());
      sequences.push_back({.first_row = static_cast<uint32_t>(tokens.size()),
                           .rows = rows,
                           .start = feeds[i]->computed,
                           .writes_kv = true,
                           .blocks = feeds[i]->blocks});
      tokens.insert(tokens.end(), chunks[i].begin(), chunks[i].end());
      feeds[i]->computed += rows;
    }
    return copy(backend_->read(decoder_->forward({tokens, sequences, wanted}, *cache_)));
  }

  Status load(const std::string& path, Precision precision, KvType kv_type, Arithmetic arithmetic) {
    SKEIN_ASSIGN(WeightSource source, open_model(path));
    source_ = std::make_unique<WeightSource>(std::move(source));
    if (arithmetic == Arithmetic::kReference) {
      backend_ = make_reference_backend(precision);
    } else if (arithmetic == Arithmetic::kHopper) {
      backend_ = make_reference_backend(precision, Profile::kHopper);
    } else if (arithmetic == Arithmetic::kCuda) {
      SKEIN_ASSIGN(backend_, make_backend({.device = "cuda", .precision = precision}, threads_));
    } else {
      SKEIN_ASSIGN(const CpuIsa isa, choose_isa(std::nullopt));
      backend_ = make_cpu_backend(threads_, isa, precision);
    }
    SKEIN_ASSIGN(decoder_, Decoder::load(*source_, *backend_, {.limits = {kRows, kRows}}));
    SKEIN_ASSIGN(cache_, backend_->make_kv(kv_spec(decoder_->spec(), kv_type), kBlocks));
    return ok_status();
  }

  ComputePool threads_;
  std::unique_ptr<WeightSource> source_;
  std::unique_ptr<Backend> backend_;
  std::unique_ptr<Decoder> decoder_;
  std::unique_ptr<KvCache> cache_;
  Status status_;
};

}  // namespace skein::testing
