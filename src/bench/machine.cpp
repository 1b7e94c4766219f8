#include "bench/machine.h"

#include <algorithm>
#include <charconv>
#include <filesystem>
#include <fstream>
#include <sstream>

#include "base/cpus.h"

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

}  // namespace skein::bench
