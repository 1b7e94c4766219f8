#include "server/listen_socket.h"

#include <arpa/inet.h>
#include <cerrno>
#include <cstring>
#include <netdb.h>
#include <netinet/in.h>

namespace skein {

bool ListenAddress::is_loopback() const {
  if (bytes.ss_family == AF_INET) {
    sockaddr_in v4{};
    std::memcpy(&v4, &bytes, sizeof(v4));
    return ntohl(v4.sin_addr.s_addr) >> 24 == 127;
  }
  sockaddr_in6 v6{};
  std::memcpy(&v6, &bytes, sizeof(v6));
  return IN6_IS_ADDR_LOOPBACK(&v6.sin6_addr) != 0;
}

Result<ListenAddress> listen_address(std::string_view option, const std::string& host,
                                     uint16_t port) {
  addrinfo hints{};
  hints.ai_flags = AI_NUMERICHOST | AI_NUMERICSERV;
  hints.ai_socktype = SOCK_STREAM;
  addrinfo* found = nullptr;
  const std::string name = host == "localhost" ? "127.0.0.1" : host;
  if (::getaddrinfo(name.c_str(), std::to_string(port).c_str(), &hints, &found) != 0) {
    return invalid_argument("{}: '{}' is no address", option, host);
  }
  ListenAddress address;
  std::memcpy(&address.bytes, found->ai_addr, found->ai_addrlen);
  address.size = found->ai_addrlen;
  ::freeaddrinfo(found);
  return address;
}

Result<OwnedFd> listen_on(std::string_view option, const std::string& host, uint16_t port,
                          int backlog) {
  SKEIN_ASSIGN(const ListenAddress address, listen_address(option, host, port));
  OwnedFd fd(::socket(address.bytes.ss_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  const int on = 1;
  if (fd.get() < 0 || ::setsockopt(fd.get(), SOL_SOCKET, SO_REUSEADDR, &on, sizeof(on)) != 0 ||
      ::bind(fd.get(), reinterpret_cast<const sockaddr*>(&address.bytes), address.size) != 0 ||
      ::listen(fd.get(), backlog) != 0) {
    return unavailable("{}: cannot listen on {} port {}: {}", option, host, port,
                       std::strerror(errno));
  }
  return fd;
}

uint16_t port_of(const OwnedFd& listener) {
  sockaddr_storage bytes{};
  socklen_t size = sizeof(bytes);
  if (::getsockname(listener.get(), reinterpret_cast<sockaddr*>(&bytes), &size) != 0) return 0;
  in_port_t port = 0;
  if (bytes.ss_family == AF_INET) {
    sockaddr_in v4{};
    std::memcpy(&v4, &bytes, sizeof(v4));
    port = v4.sin_port;
  } else {
    sockaddr_in6 v6{};
    std::memcpy(&v6, &bytes, sizeof(v6));
    port = v6.sin6_port;
  }
  return ntohs(port);
}

bool is_short_of_descriptors(int error) {
  return error == EMFILE || error == ENFILE || error == ENOMEM || error == ENOBUFS;
}

}  // namespace skein
