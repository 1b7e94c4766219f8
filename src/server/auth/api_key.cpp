#include "server/auth/api_key.h"

#include <array>
#include <new>
#include <openssl/crypto.h>
#include <openssl/evp.h>

#include "server/store/random.h"

namespace skein {
namespace {

constexpr size_t kIdBytes = 8;
constexpr size_t kSecretBytes = 32;
constexpr std::string_view kPrefix = "sk-";

using Digest = std::array<std::byte, 32>;

Digest salted_sha256(std::span<const std::byte> salt, std::string_view secret) {
  // Where OpenSSL found no memory to set itself up, its functions follow null pointers.
  if (OSSL_LIB_CTX_get0_global_default() == nullptr) throw std::bad_alloc();
  Digest digest;
  EVP_MD_CTX* context = EVP_MD_CTX_new();
  const bool done =
      context != nullptr && EVP_DigestInit_ex(context, EVP_sha256(), nullptr) == 1 &&
      EVP_DigestUpdate(context, salt.data(), salt.size()) == 1 &&
      EVP_DigestUpdate(context, secret.data(), secret.size()) == 1 &&
      EVP_DigestFinal_ex(context, reinterpret_cast<unsigned char*>(digest.data()), nullptr) == 1;
  EVP_MD_CTX_free(context);
  if (!done) throw std::bad_alloc();  // the only way in which it can fail
  return digest;
}

bool is_hex(std::string_view text, size_t digits) {
  return text.size() == digits &&
         text.find_first_not_of("0123456789abcdef") == std::string_view::npos;
}

}  // namespace

std::string make_key_id() {
  return random_hex(kIdBytes);
}

std::string make_secret() {
  return random_hex(kSecretBytes);
}

std::string key_text(std::string_view id, std::string_view secret) {
  return fmt::format("{}{}-{}", kPrefix, id, secret);
}

std::optional<PresentedKey> parse_key(std::string_view text) {
  constexpr size_t kIdDigits = 2 * kIdBytes;
  constexpr size_t kSecretAt = kPrefix.size() + kIdDigits + 1;
  if (!text.starts_with(kPrefix) || text.size() != kSecretAt + 2 * kSecretBytes ||
      text[kSecretAt - 1] != '-') {
    return std::nullopt;
  }
  const PresentedKey key{text.substr(kPrefix.size(), kIdDigits), text.substr(kSecretAt)};
  if (!is_hex(key.id, kIdDigits) || !is_hex(key.secret, 2 * kSecretBytes)) return std::nullopt;
  return key;
}

KeyDigest digest_secret(std::string_view secret) {
  KeyDigest made;
  fill_random(made.salt);
  made.digest = salted_sha256(made.salt, secret);
  return made;
}

bool matches(const KeyDigest& digest, std::string_view secret) {
  const Digest presented = salted_sha256(digest.salt, secret);
  return CRYPTO_memcmp(presented.data(), digest.digest.data(), presented.size()) == 0;
}

}  // namespace skein
