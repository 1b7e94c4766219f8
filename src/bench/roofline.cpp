#include "bench/roofline.h"

#include <algorithm>
#include <chrono>
#include <cstring>
#include <sys/mman.h>

#include "base/check.h"
#include "base/memory.h"
#include "bench/peak_kernels.h"

namespace skein::bench {
namespace {

constexpr uint64_t kHugePage = uint64_t{2} << 20;
constexpr int kRounds = 9;
constexpr int kFewRounds = 4;  // of what takes long

double seconds_now() {
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

template <class Work>
double best_seconds(int rounds, const Work& work) {
  double best = 1e9;
  for (int round = 0; round < rounds; ++round) {
    const double before = seconds_now();
    work();
    best = std::min(best, seconds_now() - before);
  }
  return best;
}

}  // namespace

BandwidthProbe::BandwidthProbe(ComputePool& pool) : pool_(pool) {}
BandwidthProbe::~BandwidthProbe() = default;

void BandwidthProbe::grow(uint64_t bytes) {
  if (bytes <= bytes_) return;
  const uint64_t whole = (bytes + kHugePage - 1) / kHugePage * kHugePage;
  auto* memory = static_cast<std::byte*>(std::aligned_alloc(kHugePage, whole));
  SKEIN_CHECK(memory != nullptr, "no memory for {} bytes to read", whole);
  memory_ = {memory, std::free};
  bytes_ = whole;
  ::madvise(memory, whole, MADV_HUGEPAGE);  // a wish; without it pages are small
  const size_t parts = pool_.threads();
  // Each thread touches what it will read, so that pages are near it.
  pool_.run(parts, [&](size_t part) {
    const uint64_t share = whole / parts;
    std::memset(memory + part * share, 1, part + 1 == parts ? whole - part * share : share);
  });
}

double BandwidthProbe::gb_per_second(uint64_t bytes) {
  const uint64_t most = std::max(bytes_, std::min(kMaxBytes, available_memory() / 4));
  bytes = std::clamp<uint64_t>(bytes, kHugePage, std::max(kHugePage, most));
  grow(bytes);
  const size_t parts = pool_.threads();
  const uint64_t share = bytes / parts / kReadStride * kReadStride;
  // Enough to be timed: small sizes are read many times over.
  const auto repeats = static_cast<size_t>(std::max<uint64_t>(1, (uint64_t{1} << 28) / bytes));
  std::vector<uint64_t> sums(parts * 8);
  const int rounds = bytes > kMaxBytes / 2 ? kFewRounds : kRounds;
  const double best = best_seconds(rounds, [&] {
    pool_.run(parts, [&](size_t part) {
      for (size_t i = 0; i < repeats; ++i) {
        sums[part * 8] += read_all(memory_.get() + part * share, share);
      }
    });
  });
  double speed = static_cast<double>(share * parts * repeats) / best / 1e9;
  // Fewer bytes are read no slower than more: if they were, somebody else had the memory meanwhile.
  measured_.emplace_back(bytes, speed);
  for (const auto& [size, other] : measured_) {
    if (size >= bytes) speed = std::max(speed, other);
  }
  return speed;
}

double MachineLimits::best_tera_per_second() const {
  double best = 0;
  for (const ArithmeticPeak& peak : peaks) best = std::max(best, peak.tera_per_second);
  return best;
}

MachineLimits measure_limits(ComputePool& pool, BandwidthProbe& probe, const MachineFacts& facts) {
  MachineLimits limits;
  limits.cache_bytes = facts.l3_bytes / 2;
  if (limits.cache_bytes > 0) limits.cache_gb_per_second = probe.gb_per_second(limits.cache_bytes);
  limits.memory_gb_per_second = probe.gb_per_second(BandwidthProbe::kMaxBytes);
  const size_t threads = pool.threads();
  for (const PeakKernel& kernel : peak_kernels()) {
    constexpr uint64_t kIterations = 400'000;
    std::vector<uint64_t> sinks(threads * 8);
    const double best = best_seconds(kRounds, [&] {
      pool.run(threads, [&](size_t part) { sinks[part * 8] += kernel.run(kIterations); });
    });
    const double operations = static_cast<double>(kernel.operations_per_iteration) *
                              static_cast<double>(kIterations * threads);
    limits.peaks.push_back({kernel.name, operations / best / 1e12});
  }
  return limits;
}

StepLimit step_limit(const ModelCosts& costs, uint32_t batch, double context_tokens,
                     double tera_per_second, const std::function<double(uint64_t)>& bandwidth) {
  StepLimit limit;
  limit.batch = batch;
  const double context = context_tokens * batch;
  limit.bytes = costs.weight_bytes +
                static_cast<uint64_t>(context * static_cast<double>(costs.kv_bytes_per_token));
  limit.gb_per_second = bandwidth(limit.bytes);
  limit.memory_us = static_cast<double>(limit.bytes) / (limit.gb_per_second * 1e3);
  const double operations = static_cast<double>(costs.operations_per_row) * batch +
                            static_cast<double>(costs.operations_per_pair) * context;
  limit.compute_us = tera_per_second > 0 ? operations / (tera_per_second * 1e6) : 0;
  limit.tokens_per_second = batch * 1e6 / std::max(limit.memory_us, limit.compute_us);
  return limit;
}

}  // namespace skein::bench
