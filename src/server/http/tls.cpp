#include "server/http/tls.h"

#include <utility>

namespace skein::http {

namespace ssl = boost::asio::ssl;

Status TlsCertificate::load(const TlsFiles& files) {
  auto fresh = std::make_shared<ssl::context>(ssl::context::tls_server);
  SSL_CTX_set_min_proto_version(fresh->native_handle(), TLS1_2_VERSION);
  SSL_CTX_set_mode(fresh->native_handle(), SSL_MODE_RELEASE_BUFFERS);
  boost::system::error_code error;
  fresh->use_certificate_chain_file(files.certificate_chain, error);
  if (error) {
    return invalid_argument("TLS certificate {}: {}", files.certificate_chain, error.message());
  }
  // It is also held against the certificate.
  fresh->use_private_key_file(files.private_key, ssl::context::pem, error);
  if (error) return invalid_argument("TLS key {}: {}", files.private_key, error.message());
  const std::lock_guard lock(mutex_);
  context_ = std::move(fresh);
  return {};
}

std::shared_ptr<ssl::context> TlsCertificate::context() const {
  const std::lock_guard lock(mutex_);
  return context_;
}

}  // namespace skein::http
