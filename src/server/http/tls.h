// The certificate that new connections get. Internal to http/.
#pragma once

#include <boost/asio/ssl/context.hpp>
#include <memory>
#include <mutex>

#include "base/status.h"
#include "server/http/http_server.h"

namespace skein::http {

// Any thread may call any member.
class TlsCertificate {
 public:
  // Reads the files. Connections that are open keep what they have. A pair that cannot be used
  // leaves everything as it was; the error names the file.
  Status load(const TlsFiles& files);

  // Null until one was loaded: connections are plain.
  std::shared_ptr<boost::asio::ssl::context> context() const;

 private:
  mutable std::mutex mutex_;
  std::shared_ptr<boost::asio::ssl::context> context_;
};

}  // namespace skein::http
