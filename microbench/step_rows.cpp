// What a step of n rows costs, over a step of one: n rows of one text, which is the price of
// checking n - 1 guesses, or one row of each of n texts, which is a batch.
//
//   skein_step_rows MODEL [CONTEXT [THREADS [one|many [scalar|avx2|avx512|amx]]]]
//
// Times are the CPU's of all threads over their number, the least of many turns in which every n
// comes once, so that a busy machine counts as little as it can.
#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <ctime>
#include <numeric>
#include <optional>
#include <string>
#include <utility>
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

int measure(const char* path, uint32_t context, uint32_t threads, bool many,
            std::optional<std::string> isa) {
  ComputePool pool(threads);
  ModelOptions options;
  options.isa = std::move(isa);
  options.limits = {.rows = 256, .logit_rows = kMostRows};
  auto loaded = LoadedModel::load(path, options, pool);
  if (!loaded.ok()) {
    std::fprintf(stderr, "%s\n", std::string(loaded.message()).c_str());
    return 1;
  }
  const LoadedModel& model = **loaded;
  // Of each text a table of blocks; guesses have the first one's.
  const auto blocks = static_cast<uint32_t>(blocks_for(context + kMostRows));
  const uint32_t texts = many ? kMostRows : 1;
  auto cache = model.make_kv(texts * blocks);
  if (!cache.ok()) return 1;
  std::vector<std::vector<BlockId>> tables(texts);
  for (uint32_t i = 0; i < texts * blocks; ++i) tables[i / blocks].emplace_back(i);
  const auto step = [&](std::span<const Sequence> sequences, uint32_t rows, uint32_t logits) {
    std::vector<TokenId> tokens(rows);
    std::iota(tokens.begin(), tokens.end(), 100);
    std::vector<uint32_t> wanted(logits);
    std::iota(wanted.begin(), wanted.end(), rows - logits);
    const Rows out = model.decoder().forward(
        {.tokens = tokens, .sequences = sequences, .logit_rows = wanted}, **cache);
    (void)model.backend().read(out);
  };
  for (const std::vector<BlockId>& table : tables) {
    for (uint32_t done = 0; done < context; done += 64) {
      const uint32_t rows = std::min(64U, context - done);
      const Sequence text = {.first_row = 0, .rows = rows, .start = done, .blocks = table};
      step({&text, 1}, rows, 0);
    }
  }
  const auto measured = [&](uint32_t rows) {
    std::vector<Sequence> sequences;
    const uint32_t each = many ? 1 : rows;
    for (uint32_t row = 0; row < rows; row += each) {
      sequences.push_back(
          {.first_row = row, .rows = each, .start = context, .blocks = tables[row / each]});
    }
    step(sequences, rows, rows);
  };
  std::vector<Least> least(kMostRows + 1);
  for (uint32_t turn = 0; turn < kTurns; ++turn) {
    for (uint32_t rows = 1; rows <= kMostRows; ++rows) {
      const double cpu = cpu_us();
      const double wall = wall_us();
      measured(rows);
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
    std::fprintf(stderr,
                 "skein_step_rows MODEL [CONTEXT [THREADS [one|many [scalar|avx2|avx512|amx]]]]\n");
    return 2;
  }
  const auto number = [&](int at, uint32_t otherwise) {
    return count > at ? static_cast<uint32_t>(std::atoi(arguments[at])) : otherwise;
  };
  const bool many = count > 4 && std::string_view(arguments[4]) == "many";
  std::optional<std::string> isa;
  if (count > 5) isa = arguments[5];
  return skein::measure(arguments[1], number(2, 192), number(3, 2), many, std::move(isa));
}
