// What a sandboxed process can no longer do, tried in children of this test.
#include "base/sandbox.h"

#include <arpa/inet.h>
#include <cerrno>
#include <cstdlib>
#include <fcntl.h>
#include <filesystem>
#include <fstream>
#include <functional>
#include <gtest/gtest.h>
#include <linux/sched.h>
#include <netinet/in.h>
#include <sched.h>
#include <sys/ptrace.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <thread>
#include <unistd.h>

namespace skein {
namespace {

constexpr int kNoSandbox = 200;  // a child's exit status, beyond all errno of Linux

int error_of(long result) {
  return result < 0 ? errno : 0;
}

class SandboxTest : public testing::Test {
 protected:
  void SetUp() override {
    std::string name = std::filesystem::temp_directory_path() / "skein-sandbox-XXXXXX";
    ASSERT_NE(::mkdtemp(name.data()), nullptr);
    folder_ = name;
    for (const char* sub : {"/models", "/state", "/secrets"}) {
      std::filesystem::create_directory(folder_ + sub);
      std::ofstream(folder_ + sub + "/file") << "text";
    }
    rules_ = {.read = {folder_ + "/models", "/proc/self"}, .write = {folder_ + "/state"}};
    const int report = in_child([](const SandboxReport& entered) {
      return (entered.landlock_abi >= 1 ? 1 : 0) + (entered.landlock_abi >= 4 ? 2 : 0) +
             (entered.has_syscall_filter ? 4 : 0);
    });
    ASSERT_LT(report, 8) << "the sandbox could not be entered";
    has_landlock_ = (report & 1) != 0;
    has_tcp_rules_ = (report & 2) != 0;
    has_seccomp_ = (report & 4) != 0;
  }
  void TearDown() override { std::filesystem::remove_all(folder_); }

  // What `act` returns in a sandboxed child: an errno, by custom.
  int in_child(const std::function<int(const SandboxReport&)>& act) const {
    const pid_t child = ::fork();
    if (child == 0) {
      const auto entered = enter_sandbox(rules_);
      ::_exit(entered.ok() ? act(*entered) : kNoSandbox);
    }
    int status = 0;
    ::waitpid(child, &status, 0);
    return WIFEXITED(status) ? WEXITSTATUS(status) : 1000 + WTERMSIG(status);
  }
  int try_it(const std::function<long()>& call) const {
    return in_child([&call](const SandboxReport&) { return error_of(call()); });
  }
  long open_file(const std::string& name, int flags) const {
    return ::open((folder_ + name).c_str(), flags | O_CLOEXEC, 0600);
  }

  std::string folder_;
  SandboxRules rules_;
  bool has_landlock_ = false;
  bool has_tcp_rules_ = false;
  bool has_seccomp_ = false;
};

// What takes a kernel that enforces it: one ctest, with the label `hardware`.
class SandboxKernelTest : public SandboxTest {};

TEST_F(SandboxTest, ReadsModelsAndWritesState) {
  EXPECT_EQ(try_it([this] { return open_file("/models/file", O_RDONLY); }), 0);
  EXPECT_EQ(try_it([] { return ::open("/proc/self/cgroup", O_RDONLY | O_CLOEXEC); }), 0);
  EXPECT_EQ(try_it([this] { return open_file("/state/new", O_RDWR | O_CREAT); }), 0);
  EXPECT_EQ(try_it([this] {
              return ::rename((folder_ + "/state/new").c_str(), (folder_ + "/state/newer").c_str());
            }),
            0);
  EXPECT_EQ(try_it([this] { return ::truncate((folder_ + "/state/newer").c_str(), 0); }), 0);
  EXPECT_EQ(try_it([this] { return ::unlink((folder_ + "/state/newer").c_str()); }), 0);
}

TEST_F(SandboxKernelTest, OpensNothingBeyondItsRules) {
  if (!has_landlock_) GTEST_SKIP() << "this kernel has no Landlock";
  EXPECT_EQ(try_it([this] { return open_file("/secrets/file", O_RDONLY); }), EACCES);
  EXPECT_EQ(try_it([] { return ::open("/etc/passwd", O_RDONLY | O_CLOEXEC); }), EACCES);
  EXPECT_EQ(try_it([this] { return open_file("/models/file", O_RDWR); }), EACCES);
  EXPECT_EQ(try_it([this] { return open_file("/models/new", O_RDWR | O_CREAT); }), EACCES);
  EXPECT_EQ(try_it([this] { return ::unlink((folder_ + "/models/file").c_str()); }), EACCES);
  EXPECT_EQ(try_it([this] { return open_file("/new", O_RDWR | O_CREAT); }), EACCES);
  EXPECT_EQ(try_it([this] { return ::symlink("/etc/passwd", (folder_ + "/state/link").c_str()); }),
            EACCES);
}

TEST_F(SandboxKernelTest, ALinkLeadsNowhereThatIsNotAllowed) {
  if (!has_landlock_) GTEST_SKIP() << "this kernel has no Landlock";
  std::filesystem::create_symlink(folder_ + "/secrets/file", folder_ + "/models/link");
  EXPECT_EQ(try_it([this] { return open_file("/models/link", O_RDONLY); }), EACCES);
  const auto hidden = [this](const char* name) {
    return in_child([this, name](const SandboxReport&) {
      return is_hidden_by_sandbox(folder_ + name) ? 1 : 0;
    });
  };
  EXPECT_EQ(hidden("/models/link"), 1);
  EXPECT_EQ(hidden("/models/file"), 0);
  EXPECT_EQ(hidden("/models/nothing"), 0);
}

TEST_F(SandboxKernelTest, ConnectsToNobody) {
  if (!has_tcp_rules_) GTEST_SKIP() << "this kernel's Landlock has no rules for TCP";
  const int listener = ::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  sockaddr_in address = {};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  socklen_t bytes = sizeof(address);
  auto* const raw = reinterpret_cast<sockaddr*>(&address);
  ASSERT_EQ(::bind(listener, raw, bytes), 0);
  ASSERT_EQ(::listen(listener, 4), 0);
  ASSERT_EQ(::getsockname(listener, raw, &bytes), 0);
  const auto connect_to_it = [&] {
    return ::connect(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0), raw, bytes);
  };
  EXPECT_EQ(try_it(connect_to_it), EACCES);
  EXPECT_EQ(error_of(connect_to_it()), 0) << "without a sandbox it works";
  rules_.connect_ports = {ntohs(address.sin_port)};
  EXPECT_EQ(try_it(connect_to_it), 0) << "a rule allows its port";
  ::close(listener);
}

TEST_F(SandboxKernelTest, RefusesCallsThatReachFurther) {
  if (!has_seccomp_) GTEST_SKIP() << "this kernel has no seccomp";
  char name[] = "/bin/true";
  char* const arguments[] = {name, nullptr};
  char* const environment[] = {nullptr};
  EXPECT_EQ(try_it([&] { return ::execve(name, arguments, environment); }), EPERM);
  EXPECT_EQ(try_it([] { return ::ptrace(PTRACE_TRACEME, 0, nullptr, nullptr); }), EPERM);
  EXPECT_EQ(try_it([] { return ::unshare(CLONE_NEWUSER); }), EPERM);
  EXPECT_EQ(try_it([] { return ::setuid(::getuid()); }), EPERM);
  EXPECT_EQ(try_it([] { return ::syscall(SYS_clone, CLONE_NEWUSER | SIGCHLD, 0, 0, 0, 0); }),
            EPERM);
  EXPECT_EQ(try_it([] { return ::syscall(SYS_clone3, nullptr, 0); }), ENOSYS);
#define SKEIN_DENY(name) \
  EXPECT_EQ(try_it([] { return ::syscall(SYS_##name, -1, 0, 0, 0, 0, 0); }), EPERM) << #name;
#include "base/sandbox_syscalls.def"
#undef SKEIN_DENY
}

TEST_F(SandboxTest, StillStartsThreadsAndProcesses) {
  EXPECT_EQ(in_child([](const SandboxReport&) {
              int done = 0;
              std::thread([&done] { done = 7; }).join();
              return done;
            }),
            7);
  EXPECT_EQ(in_child([](const SandboxReport&) {
              const pid_t child = ::fork();
              if (child == 0) ::_exit(9);
              int status = 0;
              ::waitpid(child, &status, 0);
              return WEXITSTATUS(status);
            }),
            9);
}

TEST_F(SandboxTest, IsNotEnteredBesideOtherThreads) {
  const pid_t child = ::fork();
  if (child == 0) {
    int refused = 0;
    std::thread other([] { ::pause(); });
    refused = enter_sandbox(rules_).status().message().find("2 threads") != std::string::npos;
    ::_exit(refused);
  }
  int status = 0;
  ::waitpid(child, &status, 0);
  EXPECT_EQ(WEXITSTATUS(status), 1);
}

TEST_F(SandboxKernelTest, NoThreadOpensSocketsOnceTheyAreForbidden) {
  if (!has_seccomp_) GTEST_SKIP() << "this kernel has no seccomp";
  EXPECT_EQ(in_child([](const SandboxReport&) {
              if (::socket(AF_INET, SOCK_STREAM, 0) < 0) return kNoSandbox;
              int gate[2];
              int error = 0;
              if (::pipe(gate) != 0) return kNoSandbox;
              std::thread other([&] {  // there before, and asks afterwards
                char byte = 0;
                if (::read(gate[0], &byte, 1) == 1)
                  error = error_of(::socket(AF_INET, SOCK_STREAM, 0));
              });
              if (!forbid_new_sockets().ok()) return kNoSandbox;
              if (::write(gate[1], "x", 1) != 1) return kNoSandbox;
              other.join();
              return error;
            }),
            EPERM);
}

// A server whose store is elsewhere connects to it anew, and listens nowhere else.
TEST_F(SandboxTest, WhoMayStillConnectDoesNotListen) {
  if (!has_seccomp_) GTEST_SKIP() << "this kernel has no seccomp";
  EXPECT_EQ(in_child([](const SandboxReport&) {
              if (!forbid_new_sockets(Sockets::kConnect).ok()) return kNoSandbox;
              const int fd = ::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
              return fd < 0 ? errno : error_of(::listen(fd, 1));
            }),
            EPERM);
}

}  // namespace
}  // namespace skein
