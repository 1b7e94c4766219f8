// A loaded model and a cache, for tests: feeds tokens in any chunks and gives logits back.
#pragma once

#include <gtest/gtest.h>
#include <memory>
#include <numeric>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "backend/reference/reference_backend.h"
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

  explicit Runner(const std::string& path, uint32_t blocks = 64) : status_(load(path, blocks)) {}

  const Status& status() const { return status_; }
  Decoder& decoder() { return *decoder_; }
  const KvPool& pool() const { return *pool_; }

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
    std::vector<uint32_t> wanted(tokens.size());
    std::iota(wanted.begin(), wanted.end(), 0);
    const Rows logits = decoder_->forward({tokens, sequences, wanted}, *pool_);
    std::vector<std::vector<float>> out;
    for (size_t i = 0; i < logits.rows; ++i) {
      out.emplace_back(logits.row(i), logits.row(i) + logits.width);
    }
    return out;
  }
  std::vector<std::vector<float>> step(Feed& feed, std::span<const TokenId> chunk) {
    Feed* feeds[] = {&feed};
    return step(feeds, std::span(&chunk, 1));
  }

 private:
  Status load(const std::string& path, uint32_t blocks) {
    SKEIN_ASSIGN(WeightSource source, open_model(path));
    source_ = std::make_unique<WeightSource>(std::move(source));
    backend_ = make_reference_backend();
    SKEIN_ASSIGN(decoder_, Decoder::load(*source_, *backend_, {.limits = {kRows, kRows}}));
    SKEIN_ASSIGN(KvPool pool, KvPool::create(*backend_, decoder_->spec(), blocks));
    pool_ = std::make_unique<KvPool>(std::move(pool));
    return ok_status();
  }

  std::unique_ptr<WeightSource> source_;
  std::unique_ptr<Backend> backend_;
  std::unique_ptr<Decoder> decoder_;
  std::unique_ptr<KvPool> pool_;
  Status status_;
};

}  // namespace skein::testing
