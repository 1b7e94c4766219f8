#include "bench/roofline.h"

#include <algorithm>
#include <charconv>
#include <chrono>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <sstream>
#include <sys/mman.h>

#include "base/check.h"
#include "base/resources.h"
#include "bench/peak_kernels.h"

namespace skein::bench {
namespace {

std::string file_text(const std::string& path) {
  std::ifstream in(path);
  std::ostringstream out;
  out << in.rdbuf();
  return out.str();
}

std::optional<uint64_t> leading_number(std::string_view text) {
  text.remove_prefix(std::min(text.find_first_not_of(" \t"), text.size()));
  uint64_t value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc()) return std::nullopt;
  return value;
}

// The text after "key<spaces>:<spaces>" at the beginning of some line.
std::string_view value_after(std::string_view text, std::string_view key) {
  for (size_t at = 0; at < text.size();) {
    const size_t end = std::min(text.find('\n', at), text.size());
    const std::string_view line = text.substr(at, end - at);
    const size_t colon = line.find(':');
    if (line.starts_with(key) && colon != std::string_view::npos &&
        line.substr(key.size(), colon - key.size()).find_first_not_of(" \t") ==
            std::string_view::npos) {
      const size_t value = std::min(line.find_first_not_of(" \t", colon + 1), line.size());
      return line.substr(value);
    }
    at = end + 1;
  }
  return {};
}

// "49152K" of /sys to bytes.
uint64_t cache_bytes(const std::string& root) {
  const std::string folder = root + "/sys/devices/system/cpu/cpu0/cache/index3/size";
  const std::string size = file_text(folder);
  const uint64_t number = leading_number(size).value_or(0);
  if (size.find('M') != std::string::npos) return number << 20;
  return size.find('K') != std::string::npos ? number << 10 : number;
}

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

MachineFacts read_machine(const std::string& root) {
  MachineFacts facts;
  const std::string info = file_text(root + "/proc/cpuinfo");
  facts.cpu = value_after(info, "model name");
  if (facts.cpu.empty()) facts.cpu = "unknown";
  facts.cpus = usable_cpus(root);
  const std::string memory = file_text(root + "/proc/meminfo");
  facts.memory_bytes = leading_number(value_after(memory, "MemTotal")).value_or(0) << 10;
  facts.l3_bytes = cache_bytes(root);
  return facts;
}

std::optional<CpuTicks> parse_cpu_ticks(std::string_view stat) {
  if (!stat.starts_with("cpu ")) return std::nullopt;
  std::istringstream line(std::string(stat.substr(4, stat.find('\n') - 4)));
  // user nice system idle iowait irq softirq steal; guests are part of user and nice.
  CpuTicks ticks;
  uint64_t value = 0;
  size_t field = 0;
  for (; field < 8 && line >> value; ++field) {
    ticks.all += value;
    if (field == 7) ticks.stolen = value;
  }
  if (field < 8) return std::nullopt;
  return ticks;
}

std::optional<CpuTicks> read_cpu_ticks(const std::string& root) {
  return parse_cpu_ticks(file_text(root + "/proc/stat"));
}

EnergyMeter::EnergyMeter(const std::string& root) {
  namespace fs = std::filesystem;
  std::error_code none;
  for (const fs::directory_entry& entry :
       fs::directory_iterator(root + "/sys/class/powercap", none)) {
    const std::string name = entry.path().filename();
    // "intel-rapl:0" is a package; "intel-rapl:0:1" is a part of one.
    if (name.find("rapl:") == std::string::npos || std::count(name.begin(), name.end(), ':') != 1) {
      continue;
    }
    const auto now = leading_number(file_text(entry.path() / "energy_uj"));
    const auto range = leading_number(file_text(entry.path() / "max_energy_range_uj"));
    if (now && range) packages_.push_back({entry.path() / "energy_uj", *now, *range});
  }
}

std::optional<double> EnergyMeter::joules() {
  if (packages_.empty()) return std::nullopt;
  double sum = 0;
  for (Package& package : packages_) {
    const auto now = leading_number(file_text(package.counter));
    if (!now) return std::nullopt;
    const uint64_t drawn = *now >= package.last_uj ? *now - package.last_uj
                                                   : *now + package.range_uj - package.last_uj;
    package.last_uj = *now;
    sum += static_cast<double>(drawn) / 1e6;
  }
  return sum;
}

StretchMeter::Reading StretchMeter::read() {
  Reading reading;
  reading.energy_joules = energy_.joules();
  const std::optional<CpuTicks> now = read_cpu_ticks(root_);
  if (before_ && now && now->all > before_->all) {
    reading.steal_percent = 100.0 * static_cast<double>(now->stolen - before_->stolen) /
                            static_cast<double>(now->all - before_->all);
  }
  before_ = now;
  return reading;
}

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
