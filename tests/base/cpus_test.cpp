#include <gtest/gtest.h>
#include <sched.h>
#include <string>

#include "base/resources.h"
#include "base/root_folder.h"

namespace skein {
namespace {

class Root : public testing::RootFolder {
 public:
  // All allowed CPUs, `siblings` to a core.
  void write_cores(uint32_t siblings) const {
    cpu_set_t cpus;
    ASSERT_EQ(sched_getaffinity(0, sizeof cpus, &cpus), 0);
    uint32_t seen = 0;
    for (int cpu = 0; cpu < CPU_SETSIZE; ++cpu) {
      if (!CPU_ISSET(cpu, &cpus)) continue;
      const std::string folder = "sys/devices/system/cpu/cpu" + std::to_string(cpu) + "/topology/";
      write(folder + "core_id", std::to_string(seen++ / siblings) + "\n");
      write(folder + "physical_package_id", "0\n");
    }
  }
  uint32_t cpus() const { return usable_cpus(path()); }
};

uint32_t allowed() {
  cpu_set_t cpus;
  return sched_getaffinity(0, sizeof cpus, &cpus) == 0 ? static_cast<uint32_t>(CPU_COUNT(&cpus))
                                                       : 1;
}

TEST(Cpus, AreTheAllowedOnesWhereNothingElseIsKnown) {
  const Root root;
  EXPECT_EQ(root.cpus(), allowed());
}

TEST(Cpus, ThatShareACoreCountOnce) {
  const Root root;
  root.write_cores(2);
  EXPECT_EQ(root.cpus(), (allowed() + 1) / 2);
}

TEST(TwoCpus, AreNoMoreThanAnyGroupGrants) {
  if (allowed() < 2) GTEST_SKIP() << "there is one CPU";
  const Root root;
  root.write("proc/self/cgroup", "0::/a/b\n");
  root.write("sys/fs/cgroup/a/b/cpu.max", "max 100000\n");
  EXPECT_EQ(root.cpus(), allowed());
  root.write("sys/fs/cgroup/a/cpu.max", "150000 100000\n");
  EXPECT_EQ(root.cpus(), 1u);
  root.write("sys/fs/cgroup/a/cpu.max", "50000 100000\n");
  EXPECT_EQ(root.cpus(), 1u);
  root.write("sys/fs/cgroup/a/cpu.max", "200000 100000\n");
  EXPECT_EQ(root.cpus(), 2u);
  root.write("sys/fs/cgroup/a/cpu.max", "99999900000 100000\n");
  EXPECT_EQ(root.cpus(), allowed());
}

TEST(TwoCpus, OfGroupsOfTheFirstVersion) {
  if (allowed() < 2) GTEST_SKIP() << "there is one CPU";
  const Root root;
  root.write("proc/self/cgroup", "7:memory:/x\n4:cpu,cpuacct:/x\n");
  root.write("sys/fs/cgroup/cpu/x/cpu.cfs_quota_us", "-1\n");
  root.write("sys/fs/cgroup/cpu/x/cpu.cfs_period_us", "100000\n");
  EXPECT_EQ(root.cpus(), allowed());
  root.write("sys/fs/cgroup/cpu/x/cpu.cfs_quota_us", "120000\n");
  EXPECT_EQ(root.cpus(), 1u);
}

}  // namespace
}  // namespace skein
