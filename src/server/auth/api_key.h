// API keys: sk-<id>-<secret>. The id (16 hex digits) finds the key, the secret (256 bits as 64 hex
// digits) proves it. Only a salted SHA-256 of the secret is ever kept: the secret is random in all
// its bits, so a slow hash would protect nothing that guessing could find.
#pragma once

#include <optional>
#include <string>
#include <string_view>

#include "server/store/key_store.h"

namespace skein {

// A key's id for a new key.
std::string make_key_id();
// A new secret; it is shown to its owner once and kept nowhere.
std::string make_secret();
std::string key_text(std::string_view id, std::string_view secret);

struct PresentedKey {
  std::string_view id;
  std::string_view secret;
};
// Nothing when the text has not the form of a key.
std::optional<PresentedKey> parse_key(std::string_view text);

// A fresh salt and the digest under it.
KeyDigest digest_secret(std::string_view secret);

// Whether the secret is the one behind the digest. Takes the same time wherever they differ.
bool matches(const KeyDigest& digest, std::string_view secret);

}  // namespace skein
