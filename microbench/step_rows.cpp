// What a step of n rows of one text costs, over a step of one: the price of checking n - 1 guesses.
//
//   skein_step_rows MODEL [CONTEXT [THREADS]]
//
// Times are the CPU's of all threads over their number, the least of many turns in which every n
// comes once, so that a busy machine counts as little as it can.
#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <ctime>
#include <numeric>
#include <vector>

#include "base/compute_pool.h"
#include "engine/loading/loaded_model.h"

namespace skein {
namespace {

constexpr uint32_t kMostRows = 32;
constexpr uint32_t kTurns = 60;

double cpu_us() {
  timespec now{};
  clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &now);
  return static_cast<double>(now.tv_sec) * 1e6 + static_cast<double>(now.tv_nsec) * 1e-3;
}

double wall_us() {
  timespec now{};
  clock_gettime(CLOCK_MONOTONIC, &now);
  return static_cast<double>(now.tv_sec) * 1e6 + static_cast<double>(now.tv_nsec) * 1e-3;
}

struct Least {
  double cpu = 1e12;
  double wall = 1e12;
};

int measure(const char* path, uint32_t context, uint32_t threads) {
  ComputePool pool(threads);
  ModelOptions options;
  options.limits = {.rows = 256, .logit_rows = kMostRows};
  auto loaded = LoadedModel::load(path, options, pool);
  if (!loaded.ok()) {
    std::fprintf(stderr, "%s\n", std::string(loaded.message()).c_str());
    return 1;
  }
  const LoadedModel& model = **loaded;
  const auto blocks = static_cast<uint32_t>(blocks_for(context + kMostRows));
  auto cache = model.make_kv(blocks);
  if (!cache.ok()) return 1;
  std::vector<BlockId> table;
  for (uint32_t i = 0; i < blocks; ++i) table.emplace_back(i);
  const auto step = [&](uint32_t start, uint32_t rows, uint32_t logits) {
    std::vector<TokenId> tokens(rows);
    std::iota(tokens.begin(), tokens.end(), 100);
    std::vector<uint32_t> wanted(logits);
    std::iota(wanted.begin(), wanted.end(), rows - logits);
    const Sequence sequence = {.first_row = 0, .rows = rows, .start = start, .blocks = table};
    const Rows out = model.decoder().forward(
        {.tokens = tokens, .sequences = {&sequence, 1}, .logit_rows = wanted}, **cache);
    (void)model.backend().read(out);
  };
  for (uint32_t done = 0; done < context; done += 64) step(done, std::min(64U, context - done), 0);
  std::vector<Least> least(kMostRows + 1);
  for (uint32_t turn = 0; turn < kTurns; ++turn) {
    for (uint32_t rows = 1; rows <= kMostRows; ++rows) {
      const double cpu = cpu_us();
      const double wall = wall_us();
      step(context, rows, rows);
      least[rows].cpu = std::min(least[rows].cpu, (cpu_us() - cpu) / threads);
      least[rows].wall = std::min(least[rows].wall, wall_us() - wall);
    }
  }
  std::printf("rows   cpu us   of one   wall us   of one\n");
  for (uint32_t rows = 1; rows <= kMostRows; ++rows) {
    std::printf("%4u %8.0f %8.3f %9.0f %8.3f\n", rows, least[rows].cpu,
                least[rows].cpu / least[1].cpu, least[rows].wall, least[rows].wall / least[1].wall);
  }
  return 0;
}

}  // namespace
}  // namespace skein

int main(int count, char** arguments) {
  if (count < 2) {
    std::fprintf(stderr, "skein_step_rows MODEL [CONTEXT [THREADS]]\n");
    return 2;
  }
  const auto number = [&](int at, uint32_t otherwise) {
    return count > at ? static_cast<uint32_t>(std::atoi(arguments[at])) : otherwise;
  };
  return skein::measure(arguments[1], number(2, 192), number(3, 2));
}
