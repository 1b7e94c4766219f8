#include "base/side_process.h"

#include <algorithm>
#include <cerrno>
#include <csignal>
#include <cstring>
#include <exception>
#include <new>
#include <string_view>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

namespace skein {
namespace {

constexpr size_t kMessageBytes = 8192;
constexpr int kSendTries = 100;
constexpr useconds_t kSendPauseUs = 1000;

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
constexpr bool kLimitsMemory = false;  // their shadow is terabytes of it
#else
constexpr bool kLimitsMemory = true;
#endif

// One byte of Code, then the message.
std::string encode(const Status& status) {
  std::string bytes(1, static_cast<char>(status.code()));
  return bytes.append(status.message(), 0, kMessageBytes - 1);
}

Status decode(const std::string& bytes) {
  const auto code = static_cast<uint8_t>(bytes.front());
  if (code > static_cast<uint8_t>(Code::kInternal)) return internal_error("status {}", code);
  return code == 0 ? Status() : Status(static_cast<Code>(code), bytes.substr(1));
}

// One message; empty at the end. It is taken from the channel even where there is no memory for it,
// so that no answer is ever taken for that to another request.
std::string read_message(int fd) {
  char bytes[kMessageBytes];
  ssize_t count = 0;
  do count = ::read(fd, bytes, sizeof(bytes));
  while (count < 0 && errno == EINTR);
  return {bytes, static_cast<size_t>(std::max<ssize_t>(count, 0))};
}

// A message that is lost is a process that nobody hears of again, so short memory is waited for.
bool send_message(int fd, std::string_view bytes) {
  for (int tries = 0; tries < kSendTries; ++tries) {
    if (::send(fd, bytes.data(), std::min(bytes.size(), kMessageBytes), MSG_NOSIGNAL) >= 0) {
      return true;
    }
    if (errno == EPIPE) return false;
    ::usleep(kSendPauseUs);
  }
  return false;
}

void limit(int resource, uint64_t value, uint64_t hard) {
  const rlimit both = {value, hard};
  (void)::setrlimit(static_cast<__rlimit_resource>(resource), &both);
}

Status guarded_work(const SideProcess::Options& options, const std::string& input) {
  try {
    return options.work(input);
  } catch (const std::bad_alloc&) {
    return resource_exhausted("{}: needs more than {} MiB of memory beside its own bytes", input,
                              options.limits.memory_bytes >> 20);
  } catch (const std::exception& error) {
    return internal_error("{}: {}", input, error.what());
  }
}

// Nothing may be thrown out of a fork: it would go on as its parent.
[[noreturn]] void work_in_child(const SideProcess::Options& options, const std::string& input,
                                int answer) noexcept {
  ::prctl(PR_SET_PDEATHSIG, SIGKILL);
  if (kLimitsMemory) {
    limit(RLIMIT_DATA, options.limits.memory_bytes, options.limits.memory_bytes);
  }
  limit(RLIMIT_CPU, options.limits.cpu_seconds, options.limits.cpu_seconds + 1);
  limit(RLIMIT_FSIZE, 0, 0);
  limit(RLIMIT_CORE, 0, 0);
  const std::string bytes = encode(guarded_work(options, input));
  ::_exit(send_message(answer, bytes) ? 0 : 1);
}

Status status_of_death(const std::string& input, int status, uint64_t cpu_seconds) {
  if (!WIFSIGNALED(status)) {
    return data_loss("{}: the process that reads it ended with status {}", input,
                     WEXITSTATUS(status));
  }
  const int signal = WTERMSIG(status);
  if (signal == SIGXCPU) {
    return data_loss("{}: is not read within {} s of computing", input, cpu_seconds);
  }
  return data_loss("{}: the process that reads it was ended by signal {} ({})", input, signal,
                   ::strsignal(signal));
}

Status do_one(const SideProcess::Options& options, const std::string& input, int channel) {
  int pair[2];
  if (::socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, pair) != 0) {
    return unavailable("{}: no channel to a process that reads it: {}", input,
                       std::strerror(errno));
  }
  const pid_t child = ::fork();
  if (child == 0) {
    ::close(pair[0]);
    ::close(channel);  // only the process that stands by may answer
    work_in_child(options, input, pair[1]);
  }
  const int error = errno;
  ::close(pair[1]);
  const std::string answer = child < 0 ? "" : read_message(pair[0]);
  ::close(pair[0]);
  if (child < 0) {
    return unavailable("{}: no process to read it: {}", input, std::strerror(error));
  }
  int status = 0;
  while (::waitpid(child, &status, 0) < 0 && errno == EINTR) {
  }
  if (WIFEXITED(status) && WEXITSTATUS(status) == 0 && !answer.empty()) return decode(answer);
  return status_of_death(input, status, options.limits.cpu_seconds);
}

// One request; false at the end of them.
bool serve_one(const SideProcess::Options& options, int channel) {
  try {
    const std::string input = read_message(channel);
    return !input.empty() && send_message(channel, encode(do_one(options, input, channel)));
  } catch (const std::bad_alloc&) {  // the answer must not need any either
    constexpr char kAnswer[] = {
        static_cast<char>(Code::kResourceExhausted), 'n', 'o', ' ', 'm', 'e', 'm', 'o', 'r', 'y'};
    return send_message(channel, std::string_view(kAnswer, sizeof(kAnswer)));
  }
}

[[noreturn]] void stand_by(const SideProcess::Options& options, int channel) noexcept {
  ::prctl(PR_SET_PDEATHSIG, SIGKILL);
  ::prctl(PR_SET_NAME, options.name.c_str());
  // They come to all processes of a terminal; this one ends when its channel does.
  for (const int signal : {SIGINT, SIGTERM, SIGHUP, SIGQUIT}) std::signal(signal, SIG_IGN);
  const Status prepared = options.prepare ? options.prepare() : ok_status();
  if (!send_message(channel, encode(prepared)) || !prepared.ok()) ::_exit(1);
  while (serve_one(options, channel)) {
  }
  ::_exit(0);
}

}  // namespace

Result<std::unique_ptr<SideProcess>> SideProcess::start(const Options& options) {
  int pair[2];
  if (::socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, pair) != 0) {
    return unavailable("{}: no channel to it: {}", options.name, std::strerror(errno));
  }
  const pid_t pid = ::fork();
  if (pid == 0) {
    ::close(pair[0]);
    stand_by(options, pair[1]);
  }
  const int error = errno;
  ::close(pair[1]);
  if (pid < 0) {
    ::close(pair[0]);
    return unavailable("{}: cannot be started: {}", options.name, std::strerror(error));
  }
  std::unique_ptr<SideProcess> side(new SideProcess(pair[0], pid));
  const std::string prepared = read_message(pair[0]);
  if (prepared.empty()) return internal_error("{}: ended while it started", options.name);
  SKEIN_TRY(decode(prepared));
  return side;
}

SideProcess::~SideProcess() {
  ::close(channel_);
  while (::waitpid(pid_, nullptr, 0) < 0 && errno == EINTR) {
  }
}

Status SideProcess::run(const std::string& input) {
  const std::lock_guard lock(mutex_);
  std::string answer;
  if (send_message(channel_, input)) answer = read_message(channel_);
  if (!answer.empty()) return decode(answer);
  return unavailable("{}: the process that reads such files is gone; start the server again",
                     input);
}

}  // namespace skein
