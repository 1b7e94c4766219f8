// Sockets that listen beside HTTP's own (KV events, gRPC), by addresses and not by names: who is
// let in is decided by the address.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <sys/socket.h>

#include "base/status.h"
#include "server/store/file_folder.h"

namespace skein {

struct ListenAddress {
  sockaddr_storage bytes{};
  socklen_t size = 0;

  bool is_loopback() const;
};

// `option`: whose address it is, for errors. Numbers, and localhost, which is 127.0.0.1.
Result<ListenAddress> listen_address(std::string_view option, const std::string& host,
                                     uint16_t port);
// A socket that does not block and is not inherited; port 0 takes any. kUnavailable: it is taken.
Result<OwnedFd> listen_on(std::string_view option, const std::string& host, uint16_t port,
                          int backlog);
uint16_t port_of(const OwnedFd& listener);
// Whether accept() failed for want of something that others may give back, so that whoever goes on
// at once would fail at once.
bool is_short_of_descriptors(int error);

}  // namespace skein
