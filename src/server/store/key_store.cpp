#include "server/store/key_store.h"

#include <algorithm>
#include <cctype>
#include <cstring>
#include <utility>

#include "base/log.h"
#include "server/store/batch_store.h"

namespace skein {
namespace {

constexpr size_t kMaxNameBytes = 64;
constexpr size_t kIdDigits = 16;
constexpr size_t kMaxUnwritten = 1024;  // revokes that wait for storage

#define SKEIN_KEY_COLUMNS                                                                 \
  "id, name, tier, models, requests_per_minute, tokens_per_minute, admin, salt, digest, " \
  "created_at, rotated_at, revoked_at"

std::string joined(const std::vector<std::string>& models) {
  std::string text;
  for (const std::string& model : models) text += model + "\n";
  return text;
}

std::vector<std::string> lines_of(std::string_view text) {
  std::vector<std::string> lines;
  while (!text.empty()) {
    const size_t end = text.find('\n');
    lines.emplace_back(text.substr(0, end));
    text.remove_prefix(end == std::string_view::npos ? text.size() : end + 1);
  }
  return lines;
}

template <size_t kBytes>
Status copy_bytes(const std::string& from, std::array<std::byte, kBytes>& to) {
  if (from.size() != kBytes) {
    return data_loss("store: a key's digest or salt has {} bytes, not {}", from.size(), kBytes);
  }
  std::memcpy(to.data(), from.data(), kBytes);
  return {};
}

Result<KeyRecord> key_of(const Cursor& row) {
  KeyRecord key;
  key.id = row.text(0);
  key.name = row.text(1);
  key.tier = static_cast<Priority>(row.integer(2));
  key.models = lines_of(row.text(3));
  key.requests_per_minute = static_cast<uint32_t>(row.integer(4));
  key.tokens_per_minute = static_cast<uint64_t>(row.integer(5));
  key.admin = row.integer(6) != 0;
  SKEIN_TRY(copy_bytes(row.text(7), key.salt));
  SKEIN_TRY(copy_bytes(row.text(8), key.digest));
  key.created_at_s = row.integer(9);
  key.rotated_at_s = row.integer(10);
  key.revoked_at_s = row.integer(11);
  return key;
}

Result<std::vector<KeyRecord>> all_keys(Database& db) {
  return db.list<KeyRecord>("SELECT " SKEIN_KEY_COLUMNS " FROM keys ORDER BY seq", {}, key_of);
}

Result<KeyRecord> active_key(Database& db, const std::string& name_or_id) {
  SKEIN_ASSIGN(const std::vector<KeyRecord> keys,
               db.list<KeyRecord>("SELECT " SKEIN_KEY_COLUMNS
                                  " FROM keys WHERE (name = $1 OR id = $1) AND revoked_at IS NULL",
                                  {name_or_id}, key_of));
  if (keys.empty()) return not_found("there is no active key with the name or id '{}'", name_or_id);
  return keys.front();
}

bool is_name_char(char c) {
  return std::isalnum(static_cast<unsigned char>(c)) != 0 ||
         std::string_view("._-@:+/").find(c) != std::string_view::npos;
}

bool looks_like_id(std::string_view name) {
  return name.size() == kIdDigits &&
         name.find_first_not_of("0123456789abcdef") == std::string_view::npos;
}

Status check_name(std::string_view name) {
  if (name.empty() || name.size() > kMaxNameBytes) {
    return invalid_argument("the name has {} bytes; a key's name has 1 to {}", name.size(),
                            kMaxNameBytes);
  }
  if (!std::all_of(name.begin(), name.end(), is_name_char)) {
    return invalid_argument("a key's name has letters, digits and any of '._-@:+/' only");
  }
  if (looks_like_id(name)) {
    return invalid_argument("the name '{}' looks like a key's id; choose another", name);
  }
  return {};
}

Result<KeyRecord> insert_key(Database& db, const KeyRecord& key) {
  SKEIN_TRY(check_name(key.name));
  if (!std::all_of(key.models.begin(), key.models.end(), is_model_name)) {
    return invalid_argument("a model's name is empty or has a control character");
  }
  SKEIN_TRY(db.be_alone());
  SKEIN_ASSIGN(const int64_t taken, db.integer("SELECT count(*) FROM keys WHERE name = $1 AND "
                                               "revoked_at IS NULL",
                                               {key.name}));
  if (taken != 0) {
    return already_exists("a key with the name '{}' exists; rotate or revoke it, or choose another",
                          key.name);
  }
  SKEIN_TRY(db.exec(
      "INSERT INTO keys (" SKEIN_KEY_COLUMNS
      ") VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, NULL, NULL)",
      {key.id, key.name, static_cast<int64_t>(key.tier), joined(key.models),
       static_cast<int64_t>(key.requests_per_minute), static_cast<int64_t>(key.tokens_per_minute),
       static_cast<int64_t>(key.admin), std::span<const std::byte>(key.salt),
       std::span<const std::byte>(key.digest), key.created_at_s}));
  return key;
}

Result<KeyRecord> revoke_key(Database& db, const std::string& name_or_id, int64_t now_s) {
  SKEIN_ASSIGN(KeyRecord key, active_key(db, name_or_id));
  key.revoked_at_s = now_s;
  SKEIN_TRY(db.exec("UPDATE keys SET revoked_at = $1 WHERE id = $2", {now_s, key.id}));
  SKEIN_TRY(cancel_batches_of(db, key.id, now_s));
  return key;
}

Result<KeyRecord> rotate_key(Database& db, const std::string& name_or_id, const KeyDigest& digest,
                             int64_t now_s) {
  SKEIN_ASSIGN(KeyRecord key, active_key(db, name_or_id));
  key.salt = digest.salt;
  key.digest = digest.digest;
  key.rotated_at_s = now_s;
  SKEIN_TRY(db.exec("UPDATE keys SET salt = $1, digest = $2, rotated_at = $3 WHERE id = $4",
                    {std::span<const std::byte>(key.salt), std::span<const std::byte>(key.digest),
                     now_s, key.id}));
  return key;
}

Result<std::vector<OwnerUsage>> all_usage(Database& db) {
  return db.list<OwnerUsage>(
      "SELECT owner, requests, prompt_tokens, cached_tokens, output_tokens FROM usage ORDER BY "
      "owner",
      {}, [](const Cursor& row) {
        const auto count = [&row](int column) {
          return static_cast<uint64_t>(row.integer(column));
        };
        return OwnerUsage{row.text(0), {count(1), count(2), count(3), count(4)}};
      });
}

}  // namespace

bool is_model_name(std::string_view name) {
  return !name.empty() && std::none_of(name.begin(), name.end(), [](char c) {
    return static_cast<unsigned char>(c) < 0x20 || c == 0x7f;
  });
}

Status KeyWatch::listen(Database& db, KeysListener listener) {
  listener_ = std::move(listener);
  return tell(db);
}

Status KeyWatch::tell(Database& db) {
  if (!listener_) return {};
  auto keys = all_keys(db);
  stale_ = !keys.ok();
  if (keys.ok()) listener_(*keys);
  return keys.status();
}

void KeyWatch::keys_changed(Database& db) {
  if (const Status status = tell(db); !status.ok()) {
    log_error("store: keys may have changed but cannot be read yet: {}", status.message());
  }
}

void KeyWatch::try_again(Database& db) {
  if (stale_) (void)tell(db);
}

void KeyStore::add(KeyRecord key, Done<KeyRecord> done) {
  key.created_at_s = now_s_();
  thread_.write<KeyRecord>(job_of(insert_key, std::move(key)), std::move(done));
}

void KeyStore::list(Done<std::vector<KeyRecord>> done) {
  thread_.read<std::vector<KeyRecord>>(all_keys, std::move(done));
}

void KeyStore::revoke(const std::string& name_or_id, Done<KeyRecord> done) {
  const int64_t now_s = now_s_();
  thread_.write_freeing<KeyRecord>(
      job_of(revoke_key, name_or_id, now_s),
      [this, name_or_id, now_s, done = std::move(done)](Result<KeyRecord> revoked) {
        note_revoke(name_or_id, now_s, revoked);
        done(std::move(revoked));
      });
}

void KeyStore::note_revoke(const std::string& name_or_id, int64_t at_s,
                           const Result<KeyRecord>& revoked) {
  const std::lock_guard lock(mutex_);
  if (revoked.ok() || revoked.status().code() == Code::kNotFound) {
    unwritten_.erase(name_or_id);
    if (revoked.ok()) {  // by whichever word it was asked for: another key may get the name
      unwritten_.erase(revoked->name);
      unwritten_.erase(revoked->id);
    }
  } else if (unwritten_.size() < kMaxUnwritten) {
    unwritten_.emplace(name_or_id, at_s);
  }
}

bool KeyStore::retry_revokes(Database& db) {
  std::map<std::string, int64_t> unwritten;
  {
    const std::lock_guard lock(mutex_);
    unwritten = unwritten_;
  }
  bool any = false;
  for (const auto& entry : unwritten) {
    const std::string& name = entry.first;
    const int64_t at_s = entry.second;
    Result<KeyRecord> revoked = internal_error("not tried");
    const Status written = db.transaction([&]() -> Status {
      revoked = revoke_key(db, name, at_s);
      return revoked.status();
    });
    if (revoked.ok() && !written.ok()) revoked = written;
    note_revoke(name, at_s, revoked);
    if (!revoked.ok()) continue;
    log_info("store: the key '{}' is revoked now, which could not be written before", name);
    any = true;
  }
  return any;
}

void KeyStore::rotate(std::string name_or_id, KeyDigest digest, Done<KeyRecord> done) {
  thread_.write_freeing<KeyRecord>(job_of(rotate_key, std::move(name_or_id), digest, now_s_()),
                                   [this, done = std::move(done)](Result<KeyRecord> key) {
                                     if (key.ok()) {
                                       const std::lock_guard lock(mutex_);
                                       unwritten_.erase(key->name);
                                       unwritten_.erase(key->id);
                                     }
                                     done(std::move(key));
                                   });
}

void KeyStore::usage(Done<std::vector<OwnerUsage>> done) {
  thread_.read<std::vector<OwnerUsage>>(all_usage, std::move(done));
}

Status KeyStore::watch(KeysListener listener) {
  return await_status([&](DoneStatus done) {
    thread_.read([this, listener](Database& db) { return watch_.listen(db, listener); },
                 std::move(done));
  });
}

void KeyStore::reload(DoneStatus done) {
  thread_.read([this](Database& db) { return watch_.tell(db); }, std::move(done));
}

}  // namespace skein
