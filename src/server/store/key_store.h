// API keys in the database. Secrets never come here: a record holds salt and digest (auth/api_key.h
// makes them).
//
// A key that is revoked keeps its row, so that what it owned stays owned and so that revoking the
// last key does not open a server: a state folder that ever had a key is closed for good.
//
// Thread-safety: every method may be called from any thread; answers come on the store's thread.
#pragma once

#include <functional>
#include <map>
#include <mutex>
#include <string>
#include <string_view>
#include <vector>

#include "server/store/records.h"
#include "server/store/store_thread.h"

namespace skein {

// All keys, the revoked ones included; called on the store's thread.
using KeysListener = std::function<void(const std::vector<KeyRecord>& keys)>;

// Tells a listener when keys change, by this process or by another one. Lives on the store's
// thread.
class KeyWatch {
 public:
  // Replaces the listener and tells it at once.
  Status listen(Database& db, KeysListener listener);
  Status tell(Database& db);
  // After a commit that touched them, or that may have.
  void keys_changed(Database& db);
  // Reads what could not be read then.
  void try_again(Database& db);

 private:
  KeysListener listener_;
  bool stale_ = false;  // a change could not be read yet
};

// A secret is checked against these.
struct KeyDigest {
  std::array<std::byte, 16> salt{};
  std::array<std::byte, 32> digest{};
};

// Whether a key's list of models may hold this name: it is not empty and has no control characters
// (the store has one name a line).
bool is_model_name(std::string_view name);

class KeyStore {
 public:
  KeyStore(StoreThread& thread, KeyWatch& watch, std::function<int64_t()> unix_time_s)
      : thread_(thread), watch_(watch), now_s_(std::move(unix_time_s)) {}

  // The record as given, with its time of creation. kInvalidArgument for a name that is not 1 to 64
  // letters, digits or any of "._-@:+/", or that looks like a key's id, and for models that are no
  // is_model_name(); kAlreadyExists when an active key has the name.
  void add(KeyRecord key, Done<KeyRecord> done);
  void list(Done<std::vector<KeyRecord>> done);
  // By name or id, active keys only: kNotFound. Its batches that have not ended are cancelled. What
  // storage refuses is told, and tried again until it is written, for as long as this lives.
  void revoke(const std::string& name_or_id, Done<KeyRecord> done);
  // The old secret ends with the commit; id, name, limits, files and batches stay. A revoke that
  // could not be written is off with it.
  void rotate(std::string name_or_id, KeyDigest digest, Done<KeyRecord> done);

  void usage(Done<std::vector<OwnerUsage>> done);

  // Waits until the listener has been told for the first time.
  Status watch(KeysListener listener);
  // Tells the listener again: what a SIGHUP does.
  void reload(DoneStatus done);

  // On the store's thread, now and then: writes the revokes that could not be. True: some were.
  bool retry_revokes(Database& db);

 private:
  void note_revoke(const std::string& name_or_id, int64_t at_s, const Result<KeyRecord>& revoked);

  StoreThread& thread_;
  KeyWatch& watch_;
  std::function<int64_t()> now_s_;
  std::mutex mutex_;
  std::map<std::string, int64_t> unwritten_;  // mutex_; names or ids, and when they were revoked
};

}  // namespace skein
