// The best that the machine could do: bytes and operations a second, measured here and now with the
// threads that compute; and what that means for a model, in tokens a second.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/compute_pool.h"

namespace skein::bench {

// The machine that figures are of: what it is, and what it gave to others or drew meanwhile.
struct MachineFacts {
  std::string cpu;       // as /proc/cpuinfo names it
  uint32_t cpus = 0;     // that this process may use
  uint32_t threads = 0;  // that compute
  std::string isa;       // instructions that the kernels use
  uint64_t memory_bytes = 0;
  uint64_t l3_bytes = 0;  // 0: unknown
};

// Everything but `threads` and `isa`. `root` is where /proc and /sys are looked for; tests give a
// folder of their own.
MachineFacts read_machine(const std::string& root = "");

// Processor time since the machine started, in ticks.
struct CpuTicks {
  uint64_t all = 0, stolen = 0;
};
// From the first line of /proc/stat; nullopt where it is none.
std::optional<CpuTicks> parse_cpu_ticks(std::string_view stat);
std::optional<CpuTicks> read_cpu_ticks(const std::string& root = "");

// Energy that the CPU packages have drawn, where the kernel lets us read it.
class EnergyMeter {
 public:
  explicit EnergyMeter(const std::string& root = "");
  bool readable() const { return !packages_.empty(); }
  // Since the meter was made, or last read; nullopt where it cannot be read. Counters that wrapped
  // around once are put right, so it must be read every few minutes.
  std::optional<double> joules();

 private:
  struct Package {
    std::string counter;
    uint64_t last_uj = 0;
    uint64_t range_uj = 0;
  };
  std::vector<Package> packages_;
};

// The cost of a stretch of time, which begins when the meter is made.
class StretchMeter {
 public:
  struct Reading {
    std::optional<double> steal_percent;
    std::optional<double> energy_joules;
  };
  explicit StretchMeter(const std::string& root = "")
      : root_(root), energy_(root), before_(read_cpu_ticks(root)) {}
  Reading read();

 private:
  const std::string root_;
  EnergyMeter energy_;
  std::optional<CpuTicks> before_;
};

// Bytes that all threads together read a second, by how much they read over and over.
class BandwidthProbe {
 public:
  static constexpr uint64_t kMaxBytes = uint64_t{1} << 30;
  explicit BandwidthProbe(ComputePool& pool);
  ~BandwidthProbe();

  // The best of a few rounds over `bytes`, but at most kMaxBytes (more is read no faster) and a
  // quarter of the memory that is free.
  double gb_per_second(uint64_t bytes);

 private:
  void grow(uint64_t bytes);

  ComputePool& pool_;
  std::unique_ptr<std::byte, void (*)(void*)> memory_{nullptr, nullptr};
  uint64_t bytes_ = 0;
  std::vector<std::pair<uint64_t, double>> measured_;  // bytes, GB/s
};

// One kind of arithmetic, from registers.
struct ArithmeticPeak {
  std::string name;            // "int8 (AVX-512 VNNI)"
  double tera_per_second = 0;  // operations: a multiplication and an addition are two
};

struct MachineLimits {
  double memory_gb_per_second = 0;  // kMaxBytes: what no cache holds, on most machines
  double cache_gb_per_second = 0;   // half of the L3 cache; 0 where there is none
  uint64_t cache_bytes = 0;         // that this was measured over
  std::vector<ArithmeticPeak> peaks;

  double best_tera_per_second() const;
};
MachineLimits measure_limits(ComputePool& pool, BandwidthProbe& probe, const MachineFacts& facts);

// The bytes that a step has to read and the operations that it has to compute.
struct ModelCosts {
  uint64_t weight_bytes = 0;         // that a step of one row reads
  uint64_t kv_bytes_per_token = 0;   // of context, per sequence
  uint64_t operations_per_row = 0;   // two per weight that a row meets
  uint64_t operations_per_pair = 0;  // of a row and a token of its context: attention
};

struct StepLimit {
  uint32_t batch = 0;
  uint64_t bytes = 0;  // of a step: the weights once, and the context of every sequence
  double gb_per_second = 0;
  double memory_us = 0;
  double compute_us = 0;
  double tokens_per_second = 0;  // batch over the longer of the two
};

// `bandwidth` gives GB/s for a step that reads so many bytes.
StepLimit step_limit(const ModelCosts& costs, uint32_t batch, double context_tokens,
                     double tera_per_second, const std::function<double(uint64_t)>& bandwidth);

}  // namespace skein::bench
