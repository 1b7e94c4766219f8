#include <gtest/gtest.h>

#include "base/resources.h"
#include "base/root_folder.h"

namespace skein {
namespace {

class MachineRoot : public testing::RootFolder {
 public:
  MachineRoot() {
    write("proc/meminfo",
          "MemTotal:       24681284 kB\nMemFree:          100 kB\n"
          "MemAvailable:   1000 kB\nBuffers:          77 kB\n");
  }
  uint64_t available() const { return available_memory(path()); }
};

TEST(Memory, IsWhatTheMachineHasAvailable) {
  const MachineRoot root;
  EXPECT_EQ(root.available(), 1'024'000u);
  root.write("proc/self/cgroup", "0::/\n");
  EXPECT_EQ(root.available(), 1'024'000u);
}

TEST(Memory, IsWhatTheGroupLeavesWithoutItsFileCache) {
  const MachineRoot root;
  root.write("proc/self/cgroup", "0::/a/b\n");
  root.write("sys/fs/cgroup/a/b/memory.max", "900000\n");
  root.write("sys/fs/cgroup/a/b/memory.current", "700000\n");
  root.write("sys/fs/cgroup/a/b/memory.stat",
             "anon 1\nfile 500\nactive_file 100000\ninactive_file 50000\n");
  EXPECT_EQ(root.available(), 350'000u);
  root.write("sys/fs/cgroup/a/b/memory.max", "max\n");
  EXPECT_EQ(root.available(), 1'024'000u);
  root.write("sys/fs/cgroup/a/memory.max", "800000\n");  // a group above counts too
  root.write("sys/fs/cgroup/a/memory.current", "750000\n");
  EXPECT_EQ(root.available(), 50'000u);
  root.write("sys/fs/cgroup/a/memory.current", "900000\n");
  EXPECT_EQ(root.available(), 0u);
}

TEST(Memory, OfAContainerThatDoesNotSeeItsPath) {
  const MachineRoot root;
  root.write("proc/self/cgroup", "0::/docker/0123\n");
  root.write("sys/fs/cgroup/memory.max", "600000\n");
  root.write("sys/fs/cgroup/memory.current", "100000\n");
  EXPECT_EQ(root.available(), 500'000u);
}

TEST(Memory, OfVersion1) {
  const MachineRoot root;
  root.write("proc/self/cgroup", "5:cpu,cpuacct:/x\n4:memory:/docker/1\n");
  root.write("sys/fs/cgroup/memory/docker/1/memory.limit_in_bytes", "500000\n");
  root.write("sys/fs/cgroup/memory/docker/1/memory.usage_in_bytes", "400000\n");
  root.write("sys/fs/cgroup/memory/docker/1/memory.stat",
             "cache 9\ninactive_file 7\ntotal_inactive_file 30000\ntotal_active_file 20000\n");
  root.write("sys/fs/cgroup/memory/memory.limit_in_bytes", "9223372036854771712\n");
  root.write("sys/fs/cgroup/memory/memory.usage_in_bytes", "400000\n");
  EXPECT_EQ(root.available(), 150'000u);
}

TEST(Memory, OfThisMachineIsSomething) {
  EXPECT_GT(available_memory(), uint64_t{1} << 20);
  EXPECT_LT(available_memory(), uint64_t{1} << 50);
  EXPECT_EQ(available_memory("/no/such/folder"), UINT64_MAX);
}

}  // namespace
}  // namespace skein
