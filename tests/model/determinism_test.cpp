// The same tokens give the same bits: logits and KV, however they are cut into chunks, wherever
// their blocks lie, whoever is beside them.
#include <algorithm>
#include <cstring>
#include <gtest/gtest.h>
#include <limits>
#include <random>
#include <vector>

#include "backend/arithmetic.h"
#include "backend/host/kv.h"
#include "model/goldens.h"
#include "model/runner.h"

namespace skein {
namespace {

using testing::Feed;
using testing::Golden;
using testing::Runner;

using Logits = std::vector<std::vector<float>>;
using Tokens = std::vector<TokenId>;

// Everything a sequence leaves behind.
struct Trace {
  Logits logits;
  std::vector<float> kv;
};

bool same_bits(const std::vector<float>& a, const std::vector<float>& b) {
  return a.size() == b.size() && std::memcmp(a.data(), b.data(), a.size() * sizeof(float)) == 0;
}

void expect_same(const Trace& got, const Trace& want, const std::string& what) {
  ASSERT_EQ(got.logits.size(), want.logits.size()) << what;
  for (size_t i = 0; i < want.logits.size(); ++i) {
    ASSERT_TRUE(same_bits(got.logits[i], want.logits[i])) << what << ": logits at position " << i;
  }
  ASSERT_TRUE(same_bits(got.kv, want.kv)) << what << ": KV";
}

// An element as it is in the cache, whatever its scale.
float stored(const std::byte* head, KvType type, size_t index) {
  switch (type) {
    case KvType::kF32:
      return reinterpret_cast<const float*>(head)[index];
    case KvType::kBf16:
      return arithmetic::float_of_bf16(reinterpret_cast<const uint16_t*>(head)[index]);
    case KvType::kInt8:
      break;
  }
  return reinterpret_cast<const int8_t*>(head)[index];
}

// Keys and values of the feed's tokens, in order of position.
std::vector<float> kv_of(Runner& runner, const Feed& feed) {
  std::vector<float> out;
  const ModelSpec& spec = runner.decoder().spec();
  for (uint32_t l = 0; l < spec.layers.size(); ++l) {
    const KvLayer layer = host_kv(runner.cache()).layer(l);
    for (uint32_t t = 0; t < feed.computed; ++t) {
      for (uint32_t h = 0; h < layer.heads; ++h) {
        const std::byte* head = layer.head(feed.blocks[t / kBlockTokens], h);
        const uint32_t slot = t % kBlockTokens;
        const auto push = [&](size_t index) { out.push_back(stored(head, layer.type, index)); };
        if (layer.type == KvType::kInt8) {
          out.push_back(reinterpret_cast<const float*>(head)[layer.key_scale_index(slot)]);
          out.push_back(reinterpret_cast<const float*>(head)[layer.value_scale_index(slot)]);
        }
        for (uint32_t d = 0; d < layer.head_dim; ++d) push(layer.key_index(slot, d));
        for (uint32_t d = 0; d < layer.head_dim; ++d) push(layer.value_index(slot, d));
      }
    }
  }
  return out;
}

void poison(Runner& runner) {
  // NaN in every format.
  std::memset(host_kv(runner.cache()).layer(0).data, 0xff, runner.cache().bytes());
}

// Feeds `tokens` in chunks of these sizes (the rest in one).
Trace run(Runner& runner, const Tokens& tokens, std::vector<size_t> sizes, Feed feed) {
  poison(runner);
  Trace trace;
  size_t next = 0;
  for (size_t i = 0; next < tokens.size(); ++i) {
    const size_t left = tokens.size() - next;
    const size_t size = i < sizes.size() ? std::min(sizes[i], left) : left;
    const Logits part = runner.step(feed, std::span(tokens).subspan(next, size));
    trace.logits.insert(trace.logits.end(), part.begin(), part.end());
    next += size;
  }
  trace.kv = kv_of(runner, feed);
  return trace;
}

Feed in_order(const Tokens& tokens) {
  return Runner::feed(static_cast<uint32_t>(tokens.size()));
}

Feed shuffled(const Tokens& tokens, std::mt19937& random) {
  Feed feed = Runner::feed(Runner::kBlocks * kBlockTokens);
  std::shuffle(feed.blocks.begin(), feed.blocks.end(), random);
  feed.blocks.resize(blocks_for(tokens.size()));
  return feed;
}

const Tokens& longest(const Golden& golden) {
  return std::max_element(
             golden.cases.begin(), golden.cases.end(),
             [](const auto& a, const auto& b) { return a.prompt.size() < b.prompt.size(); })
      ->prompt;
}

struct Setting {
  Precision precision;
  KvType kv_type;
};
constexpr Setting kSettings[] = {{Precision::kF32, KvType::kF32},
                                 {Precision::kDefault, KvType::kBf16},
                                 {Precision::kDefault, KvType::kInt8}};

template <class Fn>
void for_each_family(const Fn& fn) {
  for (const Golden& golden : testing::goldens()) {
    SCOPED_TRACE(golden.name);
    for (const auto& [precision, kv_type] : kSettings) {
      Runner runner(golden.folder, precision, kv_type);
      ASSERT_TRUE(runner.status().ok()) << runner.status().message();
      fn(runner, golden);
    }
  }
}

TEST(Determinism, ChunksGiveTheBitsOfOneChunk) {
  for_each_family([](Runner& runner, const Golden& golden) {
    const Tokens& tokens = longest(golden);
    const Trace whole = run(runner, tokens, {}, in_order(tokens));
    for (const size_t size : {1, 16, 31, 32, 33}) {
      const std::vector<size_t> sizes(tokens.size() / size, size);
      expect_same(run(runner, tokens, sizes, in_order(tokens)), whole,
                  "chunks of " + std::to_string(size));
    }
  });
}

TEST(Determinism, RandomChunksInShuffledBlocksGiveTheBitsOfOneChunk) {
  std::mt19937 random(1);
  for_each_family([&](Runner& runner, const Golden& golden) {
    const Tokens& tokens = longest(golden);
    const Trace whole = run(runner, tokens, {}, in_order(tokens));
    expect_same(run(runner, tokens, {}, shuffled(tokens, random)), whole, "shuffled blocks");
    for (int i = 0; i < 3; ++i) {
      std::vector<size_t> sizes;
      for (size_t sum = 0; sum < tokens.size(); sum += sizes.back()) {
        sizes.push_back(1 + random() % 40);
      }
      expect_same(run(runner, tokens, sizes, shuffled(tokens, random)), whole,
                  "random chunks " + std::to_string(i));
    }
  });
}

TEST(Determinism, EverySplitInTwoGivesTheBitsOfOneChunk) {
  for_each_family([](Runner& runner, const Golden& golden) {
    const Tokens tokens(longest(golden).begin(), longest(golden).begin() + 70);
    const Trace whole = run(runner, tokens, {}, in_order(tokens));
    for (size_t at = 1; at < tokens.size(); ++at) {
      expect_same(run(runner, tokens, {at}, in_order(tokens)), whole,
                  "split at " + std::to_string(at));
    }
  });
}

// Three sequences in turns: chunks of one beside single tokens of others.
TEST(Determinism, CompanyGivesTheBitsOfBeingAlone) {
  std::mt19937 random(2);
  for_each_family([&](Runner& runner, const Golden& golden) {
    std::vector<Tokens> prompts;
    std::vector<Trace> alone;
    for (const auto& item : golden.cases) {
      if (item.prompt.size() < 31) continue;
      prompts.push_back(item.prompt);
      alone.push_back(run(runner, item.prompt, {}, in_order(item.prompt)));
    }
    poison(runner);
    std::vector<Feed> feeds;
    std::vector<Trace> together(prompts.size());
    for (size_t i = 0; i < prompts.size(); ++i) {
      feeds.push_back(
          Runner::feed(static_cast<uint32_t>(prompts[i].size()), static_cast<uint32_t>(4 * i)));
    }
    for (bool more = true; more;) {
      std::vector<Feed*> rows;
      std::vector<std::span<const TokenId>> chunks;
      std::vector<size_t> who;
      for (size_t i = 0; i < prompts.size(); ++i) {
        const size_t left = prompts[i].size() - feeds[i].computed;
        const size_t size = std::min<size_t>(left, random() % 2 == 0 ? 1 : random() % 30);
        if (size == 0) continue;
        chunks.push_back(std::span(prompts[i]).subspan(feeds[i].computed, size));
        rows.push_back(&feeds[i]);
        who.push_back(i);
      }
      if (!rows.empty()) {
        const Logits logits = runner.step(rows, chunks);
        size_t row = 0;
        for (size_t j = 0; j < who.size(); ++j) {
          for (size_t k = 0; k < chunks[j].size(); ++k) {
            together[who[j]].logits.push_back(logits[row++]);
          }
        }
      }
      more = false;
      for (size_t i = 0; i < prompts.size(); ++i) more |= feeds[i].computed < prompts[i].size();
    }
    for (size_t i = 0; i < prompts.size(); ++i) {
      together[i].kv = kv_of(runner, feeds[i]);
      expect_same(together[i], alone[i], "prompt of " + std::to_string(prompts[i].size()));
    }
  });
}

TEST(Determinism, ThreadsGiveTheBitsOfTheReference) {
  for (const Golden& golden : testing::goldens()) {
    SCOPED_TRACE(golden.name);
    const Tokens tokens(longest(golden).begin(), longest(golden).begin() + 40);
    for (const auto& [precision, kv_type] : kSettings) {
      Runner reference(golden.folder, precision, kv_type, Runner::Arithmetic::kReference);
      Runner threads(golden.folder, precision, kv_type, Runner::Arithmetic::kCpuThreads);
      ASSERT_TRUE(reference.status().ok()) << reference.status().message();
      ASSERT_TRUE(threads.status().ok()) << threads.status().message();
      expect_same(run(threads, tokens, {33}, in_order(tokens)),
                  run(reference, tokens, {}, in_order(tokens)), "threads");
    }
  }
}

TEST(Determinism, HiddenStatesAreTheSameInChunksAndTheReferences) {
  for (const Golden& golden : testing::goldens()) {
    SCOPED_TRACE(golden.name);
    const Tokens& tokens = longest(golden);
    const auto hidden = [&](Runner& runner, size_t chunk) {
      Logits rows;
      Feed feed = in_order(tokens);
      for (size_t first = 0; first < tokens.size(); first += chunk) {
        const size_t count = std::min(chunk, tokens.size() - first);
        for (auto& row : runner.hidden(feed, std::span(tokens).subspan(first, count))) {
          rows.push_back(std::move(row));
        }
      }
      return rows;
    };
    Runner cpu(golden.folder, Precision::kDefault);
    ASSERT_TRUE(cpu.status().ok()) << cpu.status().message();
    const Logits whole = hidden(cpu, tokens.size());
    ASSERT_EQ(whole.front().size(), cpu.decoder().spec().hidden);
    for (const size_t chunk : {1, 7, 33}) EXPECT_EQ(hidden(cpu, chunk), whole) << chunk;
    if (golden.name != "llama" && golden.name != "gemma3")
      continue;  // the reference takes its time
    Runner reference(golden.folder, Precision::kDefault, Runner::Arithmetic::kReference);
    EXPECT_EQ(hidden(reference, tokens.size()), whole);
  }
}

// A prompt that is cached to its end computes its last token again without writing it.
TEST(Determinism, ARowThatDoesNotWriteGivesTheSameBits) {
  for_each_family([](Runner& runner, const Golden& golden) {
    const Tokens& tokens = longest(golden);
    Feed feed = in_order(tokens);
    const Logits whole = runner.step(feed, tokens);
    const std::vector<float> kv = kv_of(runner, feed);
    const Sequence again{.first_row = 0,
                         .rows = 1,
                         .start = feed.computed - 1,
                         .writes_kv = false,
                         .blocks = feed.blocks};
    const uint32_t row = 0;
    const std::span<const float> logits =
        runner.backend()
            .read(runner.decoder().forward({{&tokens.back(), 1}, {&again, 1}, {&row, 1}},
                                           runner.cache()))
            .row(0);
    EXPECT_TRUE(same_bits(std::vector<float>(logits.begin(), logits.end()), whole.back()));
    EXPECT_TRUE(same_bits(kv_of(runner, feed), kv));
  });
}

}  // namespace
}  // namespace skein
