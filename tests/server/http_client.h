// A raw HTTP client for tests: sends exactly the bytes it is given.
#pragma once

#include <arpa/inet.h>
#include <chrono>
#include <cstdlib>
#include <netinet/in.h>
#include <poll.h>
#include <string>
#include <string_view>
#include <sys/socket.h>
#include <unistd.h>

namespace skein::testing {

// How long a test waits for what must come. A test that passes waits for none of it, so that it is
// long enough for any machine.
constexpr int kPatienceMs = 30'000;

class RawClient {
 public:
  explicit RawClient(uint16_t port, int receive_buffer = 0) : fd_(socket(AF_INET, SOCK_STREAM, 0)) {
    if (receive_buffer > 0) {
      setsockopt(fd_, SOL_SOCKET, SO_RCVBUF, &receive_buffer, sizeof(receive_buffer));
    }
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_port = htons(port);
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    connected_ = connect(fd_, reinterpret_cast<sockaddr*>(&address), sizeof(address)) == 0;
  }
  ~RawClient() { close(); }
  RawClient(RawClient&& other) noexcept
      : fd_(std::exchange(other.fd_, -1)), connected_(other.connected_), in_(other.in_) {}
  RawClient& operator=(RawClient&&) = delete;

  bool connected() const { return connected_; }
  int fd() const { return fd_; }
  void close() {
    if (fd_ >= 0) ::close(fd_);
    fd_ = -1;
  }
  void half_close() { shutdown(fd_, SHUT_WR); }

  bool send(std::string_view bytes) {
    while (!bytes.empty()) {
      const ssize_t sent = ::send(fd_, bytes.data(), bytes.size(), MSG_NOSIGNAL);
      if (sent <= 0) return false;
      bytes.remove_prefix(static_cast<size_t>(sent));
    }
    return true;
  }

  // One read; false at the end or after `timeout_ms`.
  bool receive(int timeout_ms = kPatienceMs) {
    pollfd waiting{fd_, POLLIN, 0};
    if (poll(&waiting, 1, timeout_ms) <= 0) return false;
    char buffer[65536];
    const ssize_t got = recv(fd_, buffer, sizeof(buffer), 0);
    if (got <= 0) {
      ended_ = true;
      return false;
    }
    in_.append(buffer, static_cast<size_t>(got));
    return true;
  }

  // Everything until the server closes.
  std::string read_all(int timeout_ms = kPatienceMs) {
    while (receive(timeout_ms)) {
    }
    return std::exchange(in_, {});
  }

  // Until `text` was received; what came up to its end, or empty.
  std::string read_until(std::string_view text, int timeout_ms = kPatienceMs) {
    while (in_.find(text) == std::string::npos) {
      if (!receive(timeout_ms)) return {};
    }
    const size_t end = in_.find(text) + text.size();
    std::string found = in_.substr(0, end);
    in_.erase(0, end);
    return found;
  }

  struct Answer {
    int status = 0;  // 0: none came
    std::string head;
    std::string body;
  };
  // One answer with a Content-Length.
  Answer read_answer(int timeout_ms = kPatienceMs, bool has_body = true) {
    Answer answer;
    do {
      answer.head = read_until("\r\n\r\n", timeout_ms);
    } while (answer.head.starts_with("HTTP/1.1 100 "));
    if (answer.head.empty()) return answer;
    answer.status = std::atoi(answer.head.c_str() + 9);
    const size_t at = answer.head.find("Content-Length: ");
    const size_t length =
        at == std::string::npos || !has_body ? 0 : std::strtoul(&answer.head[at + 16], nullptr, 10);
    while (in_.size() < length && receive(timeout_ms)) {
    }
    answer.body = in_.substr(0, length);
    in_.erase(0, length);
    return answer;
  }

  bool ended() const { return ended_; }  // the server closed
  std::string& received() { return in_; }

 private:
  int fd_;
  bool connected_ = false;
  bool ended_ = false;
  std::string in_;
};

inline std::string get(std::string_view path, std::string_view extra = "") {
  return "GET " + std::string(path) + " HTTP/1.1\r\nHost: localhost\r\n" + std::string(extra) +
         "\r\n";
}

inline std::string post(std::string_view path, std::string_view body, std::string_view extra = "") {
  return "POST " + std::string(path) +
         " HTTP/1.1\r\nHost: localhost\r\nContent-Length: " + std::to_string(body.size()) + "\r\n" +
         std::string(extra) + "\r\n" + std::string(body);
}

template <class Condition>
bool eventually(Condition condition,
                std::chrono::milliseconds timeout = std::chrono::milliseconds(kPatienceMs)) {
  const auto deadline = std::chrono::steady_clock::now() + timeout;
  while (!condition()) {
    if (std::chrono::steady_clock::now() > deadline) return false;
    usleep(1000);
  }
  return true;
}

}  // namespace skein::testing
