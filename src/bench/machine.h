// The machine that figures are of: what it is, and what it gave to others or drew meanwhile.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace skein::bench {

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

}  // namespace skein::bench
