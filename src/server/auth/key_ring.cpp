#include "server/auth/key_ring.h"

#include <span>
#include <utility>

#include "server/auth/api_key.h"

namespace skein {

KeyRing::KeyRing(const HashKey& salt_key)
    : salt_key_(salt_key),
      nobody_(digest_secret(make_secret())),
      anonymous_([this] {
        Principal anonymous;
        anonymous.name = "anonymous";
        anonymous.salt = salt_of("");
        return std::make_shared<const Principal>(std::move(anonymous));
      }()),
      view_(std::make_shared<const View>()) {}

Status KeyRing::follow(KeyStore& keys) {
  return keys.watch([this](const std::vector<KeyRecord>& all) { replace(all); });
}

void KeyRing::replace(const std::vector<KeyRecord>& keys) {
  auto next = std::make_shared<View>();
  next->open = keys.empty();
  for (const KeyRecord& key : keys) {
    if (key.revoked_at_s != 0) continue;
    auto principal = std::make_shared<const Principal>(
        Principal{key.id, key.name, key.tier, salt_of(key.id), key.models, key.requests_per_minute,
                  key.tokens_per_minute, key.admin});
    next->by_id[key.id] = {{key.salt, key.digest}, std::move(principal), std::nullopt};
  }
  const std::lock_guard lock(mutex_);
  std::map<decltype(KeyDigest::digest), Bar> still_barred;
  for (auto& [id, entry] : next->by_id) {
    const auto found = barred_.find(entry.digest.digest);
    if (found == barred_.end()) continue;
    entry.bar = found->second;
    still_barred.insert(*found);
  }
  barred_ = std::move(still_barred);
  view_ = std::move(next);
}

void KeyRing::bar(const std::string& name_or_id, Bar bar) {
  const std::lock_guard lock(mutex_);
  auto next = std::make_shared<View>(*view_);
  for (auto& [id, entry] : next->by_id) {
    if (id != name_or_id && entry.principal->name != name_or_id) continue;
    entry.bar = bar;
    barred_[entry.digest.digest] = bar;
  }
  view_ = std::move(next);
}

bool KeyRing::is_open() const {
  return view()->open;
}

std::shared_ptr<const Principal> KeyRing::authenticate(std::string_view credential) const {
  const auto current = view();
  if (current->open) return anonymous_;
  const auto presented = parse_key(credential);
  const auto entry =
      presented ? current->by_id.find(std::string(presented->id)) : current->by_id.end();
  const bool known = entry != current->by_id.end();
  const bool right = matches(known ? entry->second.digest : nobody_,
                             presented ? presented->secret : std::string_view());
  return known && right && !entry->second.bar ? entry->second.principal : nullptr;
}

std::shared_ptr<const Principal> KeyRing::find(const std::string& key_id) const {
  if (key_id.empty()) return anonymous_;
  const auto current = view();
  const auto entry = current->by_id.find(key_id);
  const bool gone = entry == current->by_id.end() || entry->second.bar == Bar::kKey;
  return gone ? nullptr : entry->second.principal;
}

std::shared_ptr<const KeyRing::View> KeyRing::view() const {
  const std::lock_guard lock(mutex_);
  return view_;
}

Hash128 KeyRing::salt_of(std::string_view key_id) const {
  return keyed_hash(salt_key_, std::as_bytes(std::span(key_id.data(), key_id.size())));
}

}  // namespace skein
