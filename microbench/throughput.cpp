// Tokens per second of the engine with the default model: one request at a time, eight and
// thirty-two at once, beside what the memory allows and what a step costs outside the model.
//
//   skein_throughput MODEL [THREADS]
#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <numeric>
#include <thread>
#include <vector>

#include "base/rng.h"
#include "engine/batch_inference_engine.h"
#include "engine/model_runner.h"

namespace skein {
namespace {

constexpr uint32_t kPrompt = 128, kGenerated = 128, kBatch = 32;

double now_s() {
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

// GB/s that all threads together read from memory.
double read_bandwidth(ComputePool& pool) {
  constexpr size_t kFloats = (size_t{1} << 30) / sizeof(float);
  const std::vector<float> data(kFloats, 1.0F);
  const size_t parts = pool.threads();
  std::vector<float> sums(parts * 64);
  double best = 0;
  for (int round = 0; round < 5; ++round) {
    const double before = now_s();
    pool.run(parts, [&](size_t part) {
      const float* at = data.data() + part * (kFloats / parts);
      float lanes[64] = {};
      for (size_t i = 0; i < kFloats / parts; i += 64) {
        for (size_t l = 0; l < 64; ++l) lanes[l] += at[i + l];
      }
      sums[part * 64] = std::accumulate(lanes, lanes + 64, 0.0F);
    });
    best = std::max(best, (size_t{1} << 30) / (now_s() - before) / 1e9);
  }
  std::fprintf(stderr, "(checksum %g)\n", sums[0]);
  return best;
}

struct Run {
  double tokens_per_second = 0;
  double outside_model = 0;  // share of the loop's time
};

Run measure(const std::shared_ptr<LoadedModel>& model, ComputePool& pool, uint32_t concurrent) {
  const SystemClock clock;
  constexpr uint32_t kBlocks = kBatch * ((kPrompt + kGenerated) / kBlockTokens + 1);
  auto cache = KvPool::create(model->backend(), model->decoder().spec(), kBlocks, model->kv_type());
  EngineOptions options;
  options.scheduler.pool_blocks = kBlocks;
  options.scheduler.max_batch = kBatch;
  options.scheduler.max_context = kPrompt + kGenerated;
  options.scheduler.vocab_size = model->vocab();
  options.scheduler.prefix_cache = false;
  auto engine = BatchInferenceEngine::create(
      std::make_unique<ModelRunner>(model, std::move(*cache), pool, clock), options, clock);
  std::vector<RequestHandle> handles;
  for (uint32_t i = 0; i < concurrent; ++i) {
    Rng rng(i);
    GenerationRequest request;
    for (uint32_t t = 0; t < kPrompt; ++t) {
      request.prompt.push_back(static_cast<TokenId>(rng.below(model->vocab())));
    }
    request.max_tokens = kGenerated;
    request.sampling.temperature = 0;
    handles.push_back((*engine)->submit(std::move(request), {}).value());
  }
  // Tokens per second of decoding: from the moment all have their first token.
  StreamChunk chunk;
  std::vector<uint32_t> counts(concurrent, 0);
  for (uint32_t i = 0; i < concurrent; ++i) {
    handles[i].stream().wait(chunk);
    counts[i] += static_cast<uint32_t>(chunk.tokens.size());
  }
  const double first = now_s();
  for (uint32_t i = 0; i < concurrent; ++i) {
    handles[i].stream().take(chunk);  // what came while the others were waited for
    counts[i] += static_cast<uint32_t>(chunk.tokens.size());
  }
  const EngineSnapshot start = (*engine)->snapshot();
  uint32_t rest = 0;
  for (uint32_t i = 0; i < concurrent; ++i) {
    rest += kGenerated - counts[i];
    do {
      handles[i].stream().wait(chunk);
    } while (!chunk.end);
  }
  const double end = now_s();
  const EngineSnapshot last = (*engine)->snapshot();
  const double loop = static_cast<double>(last.loop_time_us - start.loop_time_us);
  const double inside = static_cast<double>(last.model_time_us - start.model_time_us);
  return {rest / (end - first), loop > 0 ? (loop - inside) / loop : 0};
}

int run(const char* path, size_t threads) {
  ComputePool pool(threads);
  ModelOptions options;
  options.limits = {.rows = 256 + kBatch, .logit_rows = kBatch};
  auto loaded = LoadedModel::load(path, options, pool);
  if (!loaded.ok()) {
    std::fprintf(stderr, "%s\n", loaded.message().c_str());
    return 1;
  }
  const std::shared_ptr<LoadedModel> model = std::move(*loaded);
  const double bandwidth = read_bandwidth(pool);
  const double limit = bandwidth * 1e9 / static_cast<double>(model->decoder().weight_bytes());
  std::printf("memory read %.1f GB/s, weights %.1f MB: at most %.0f tokens/s one at a time\n",
              bandwidth, static_cast<double>(model->decoder().weight_bytes()) / 1e6, limit);
  std::vector<double> ratios;
  for (int round = 0; round < 3; ++round) {
    const Run one = measure(model, pool, 1), eight = measure(model, pool, 8),
              all = measure(model, pool, kBatch);
    ratios.push_back(eight.tokens_per_second / one.tokens_per_second);
    std::printf(
        "1: %.1f tokens/s (%.0f %% of the limit)   8: %.1f (%.2fx)   32: %.1f (%.2fx), "
        "%.1f %% of a step outside the model\n",
        one.tokens_per_second, 100 * one.tokens_per_second / limit, eight.tokens_per_second,
        ratios.back(), all.tokens_per_second, all.tokens_per_second / one.tokens_per_second,
        100 * all.outside_model);
  }
  std::sort(ratios.begin(), ratios.end());
  std::printf("throughput: 8 at once give %.2f times the tokens of one at a time (median of 3)\n",
              ratios[1]);
  return 0;
}

}  // namespace
}  // namespace skein

int main(int argc, char** argv) {
  if (argc < 2) {
    std::fprintf(stderr, "usage: %s MODEL [THREADS]\n", argv[0]);
    return 2;
  }
  return skein::run(argv[1], argc > 2 ? std::strtoul(argv[2], nullptr, 10)
                                      : std::max(1U, std::thread::hardware_concurrency()));
}
