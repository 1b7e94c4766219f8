// The keys in memory, for every request to be checked against.
//
//   KeyRing ring(store.salt_key());
//   SKEIN_TRY(ring.follow(store.keys()));     // from now on it is as the database is
//   if (auto who = ring.authenticate(credential)) serve(*who); else refuse();   // 401
//
// With follow() a change made by this process counts before its caller is told "done", one made by
// another process (skein keys) within half a second. When the database cannot be read the last view
// stands.
//
// As long as no key was ever made, everyone is the anonymous principal, whatever they present.
// Keys that are revoked still count as made: revoking the last one closes the server, it does not
// open it.
//
// Thread-safety: any thread; a lookup holds a lock for as long as it takes to copy a pointer.
#pragma once

#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "base/hash.h"
#include "server/auth/principal.h"
#include "server/store/key_store.h"

namespace skein {

class KeyRing {
 public:
  explicit KeyRing(const HashKey& salt_key);

  // Keeps the ring as the database is for as long as the store lives; the ring must live as long.
  Status follow(KeyStore& keys);
  void replace(const std::vector<KeyRecord>& keys);

  // Refuses a key at once, by name or id, whatever the database says until its secret changes
  // there: revoking must not wait for a disk. With kSecret alone its batches go on.
  enum class Bar : uint8_t { kSecret, kKey };
  void bar(const std::string& name_or_id, Bar bar);

  // No key was ever made.
  bool is_open() const;

  // Null: refuse. An unknown id, a wrong secret and text that is no key at all cost the same: one
  // digest and one comparison.
  std::shared_ptr<const Principal> authenticate(std::string_view credential) const;

  // The principal behind a key's id: a batch runs as its creator. The empty id is the anonymous
  // one. Null: the key is revoked or was never made.
  std::shared_ptr<const Principal> find(const std::string& key_id) const;

 private:
  struct Entry {
    KeyDigest digest;
    std::shared_ptr<const Principal> principal;
    std::optional<Bar> bar;
  };
  struct View {
    bool open = true;
    std::unordered_map<std::string, Entry> by_id;  // active keys
  };

  std::shared_ptr<const View> view() const;
  Hash128 salt_of(std::string_view key_id) const;

  const HashKey salt_key_;
  const KeyDigest nobody_;  // what credentials without a key are compared with; nothing matches it
  const std::shared_ptr<const Principal> anonymous_;
  mutable std::mutex mutex_;
  std::shared_ptr<const View> view_;                   // mutex_
  std::map<decltype(KeyDigest::digest), Bar> barred_;  // mutex_; of keys that the view has
};

}  // namespace skein
