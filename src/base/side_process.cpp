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
#include <sys/uio.h>
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

// A piece of work has a number, which its answer bears too: what comes for an earlier one is not
// heard. Under this number comes that the process that stands by has died.
constexpr uint64_t kDeath = 0;
constexpr char kDied[] = {static_cast<char>(Code::kUnavailable), 'd', 'i', 'e', 'd'};
// An answer that needs no memory.
constexpr char kNoMemory[] = {
    static_cast<char>(Code::kResourceExhausted), 'n', 'o', ' ', 'm', 'e', 'm', 'o', 'r', 'y'};

struct Message {
  uint64_t number = kDeath;
  std::string bytes;  // empty: there are no more messages
};

// It is taken from the channel even where there is no memory for it, so that no answer is ever
// taken for that to another request.
Message read_message(int fd, int flags = 0) {
  char bytes[kMessageBytes];
  uint64_t number = 0;
  iovec parts[] = {{&number, sizeof(number)}, {bytes, sizeof(bytes)}};
  msghdr message = {};
  message.msg_iov = parts;
  message.msg_iovlen = std::size(parts);
  ssize_t count = 0;
  do count = ::recvmsg(fd, &message, flags);
  while (count < 0 && errno == EINTR);
  const ssize_t size = count - static_cast<ssize_t>(sizeof(number));
  return {number, {bytes, static_cast<size_t>(std::max<ssize_t>(size, 0))}};
}

// A message that is lost is a process that nobody hears of again, so short memory is waited for.
bool send_message(int fd, uint64_t number, std::string_view bytes) {
  iovec parts[] = {{&number, sizeof(number)},
                   {const_cast<char*>(bytes.data()), std::min(bytes.size(), kMessageBytes)}};
  msghdr message = {};
  message.msg_iov = parts;
  message.msg_iovlen = std::size(parts);
  for (int tries = 0; tries < kSendTries; ++tries) {
    if (::sendmsg(fd, &message, MSG_NOSIGNAL) >= 0) return true;
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
  ::_exit(send_message(answer, 0, bytes) ? 0 : 1);
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
  const std::string answer = child < 0 ? "" : read_message(pair[0]).bytes;
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
  uint64_t number = kDeath;
  try {
    const Message input = read_message(channel);
    number = input.number;
    return !input.bytes.empty() &&
           send_message(channel, number, encode(do_one(options, input.bytes, channel)));
  } catch (const std::bad_alloc&) {
    return send_message(channel, number, {kNoMemory, sizeof(kNoMemory)});
  }
}

[[noreturn]] void stand_by(const SideProcess::Options& options, int channel) noexcept {
  ::prctl(PR_SET_PDEATHSIG, SIGKILL);
  while (serve_one(options, channel)) {
  }
  ::_exit(0);
}

// Whether it may begin; the other side hears it, too.
bool prepare(const SideProcess::Options& options, int channel) {
  try {
    const Status prepared = options.prepare ? options.prepare() : ok_status();
    return send_message(channel, kDeath, encode(prepared)) && prepared.ok();
  } catch (const std::bad_alloc&) {
    send_message(channel, kDeath, {kNoMemory, sizeof(kNoMemory)});
    return false;
  }
}

// Prepares once, for all that it forks, and sees to it that a process stands by. It reads nothing
// and holds nothing, so that nothing of what ends the other one can end it.
[[noreturn]] void keep_standing(const SideProcess::Options& options, int channel) noexcept {
  ::prctl(PR_SET_PDEATHSIG, SIGKILL);
  ::prctl(PR_SET_NAME, options.name.c_str());
  // They come to all processes of a terminal; these end when their channel does.
  for (const int signal : {SIGINT, SIGTERM, SIGHUP, SIGQUIT}) std::signal(signal, SIG_IGN);
  if (!prepare(options, channel)) ::_exit(1);
  for (int starts = 0; starts <= options.max_restarts; ++starts) {
    const pid_t child = ::fork();
    if (child == 0) stand_by(options, channel);
    int status = 0;
    while (child > 0 && ::waitpid(child, &status, 0) < 0 && errno == EINTR) {
    }
    if (child > 0 && WIFEXITED(status) && WEXITSTATUS(status) == 0) break;
    // Whoever waits for an answer of it waits in vain.
    if (starts < options.max_restarts && !send_message(channel, kDeath, {kDied, sizeof(kDied)}))
      break;
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
    keep_standing(options, pair[1]);
  }
  const int error = errno;
  ::close(pair[1]);
  if (pid < 0) {
    ::close(pair[0]);
    return unavailable("{}: cannot be started: {}", options.name, std::strerror(error));
  }
  std::unique_ptr<SideProcess> side(new SideProcess(pair[0], pid));
  const std::string prepared = read_message(pair[0]).bytes;
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
  // Deaths since the last time, which concern nobody.
  while (!read_message(channel_, MSG_DONTWAIT).bytes.empty()) {
  }
  const uint64_t number = ++last_;
  const bool sent = send_message(channel_, number, input);
  Message answer;
  do answer = sent ? read_message(channel_) : Message{};
  while (answer.number != number && answer.number != kDeath);
  if (answer.bytes.empty()) {
    return unavailable("{}: the process that reads such files is gone; start the server again",
                       input);
  }
  if (answer.number == kDeath) {
    return unavailable("{}: the process that reads such files died and is started anew; try again",
                       input);
  }
  return decode(answer.bytes);
}

}  // namespace skein
