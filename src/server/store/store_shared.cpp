// Store: what is only where servers share a database.
#include <algorithm>
#include <chrono>
#include <map>
#include <utility>

#include "base/log.h"
#include "server/store/file_parts.h"
#include "server/store/store.h"
#ifdef SKEIN_FLEET
#include "server/store/postgres/postgres_database.h"
#endif

namespace skein {
namespace {

constexpr TimeUs kRecountEveryUs = 5 * kUsPerSecond;

}  // namespace

TimeUs Store::steady_us() {
  const auto since = std::chrono::steady_clock::now().time_since_epoch();
  return std::chrono::duration_cast<std::chrono::microseconds>(since).count();
}

TimeUs Store::first_count_us() {
  return steady_us() + kRecountEveryUs;
}

NodeInfo Store::node_of(const StoreOptions& options) {
  return {options.node, options.lease_ms, options.unix_time_s()};
}

#ifdef SKEIN_FLEET
bool has_shared_stores() {
  return true;
}

Result<StoreAccess> store_access(const std::string& url) {
  return postgres_access(url);
}

Result<Store::Opened> Store::open_shared(const StoreOptions& options) {
  SKEIN_ASSIGN(std::unique_ptr<PostgresDatabase> db,
               PostgresDatabase::open(options.url, options.lease_ms / 2));
  SKEIN_TRY(migrate(*db));
  return begin(std::move(db), options);
}
#else
namespace {

Status not_built_in() {
  return {
      Code::kUnimplemented,
      "--store: this skein was built without shared stores; build it with `make build FLEET=1`"};
}

}  // namespace

bool has_shared_stores() {
  return false;
}

Result<StoreAccess> store_access(const std::string&) {
  return not_built_in();
}

Result<Store::Opened> Store::open_shared(const StoreOptions&) {
  return not_built_in();
}
#endif

// Renews this server's lease, ends those of others that are over, and counts what all keep.
void Store::tick_shared(Database& db) {
  const TimeUs now_us = steady_us();
  if (now_us >= next_renewal_us_) {
    next_renewal_us_ = now_us + options_.lease_ms * kUsPerMs / 4;
    const Status renewed = epoch() == 0 ? Status{} : renew_node(db, epoch(), node_of(options_));
    if (renewed.code() == Code::kNotFound && !has_lost_epoch_.exchange(true)) {
      log_warning("store: {}: this server has not renewed its lease in time", renewed.message());
      batches_.tell();
    }
    if (const auto nodes = db.integer("SELECT count(*) FROM nodes"); nodes.ok()) {
      nodes_ = std::max<int64_t>(1, *nodes);
    }
    int64_t ended = 0;
    const Status looked = db.transaction([&]() -> Status {
      SKEIN_ASSIGN(ended, end_dead_nodes(db));
      return {};
    });
    if (looked.ok() && ended > 0) batches_.tell();
  }
  if (now_us < next_count_us_) return;
  next_count_us_ = now_us + kRecountEveryUs;
  std::map<std::string, FileUse> uses;
  Status counted = count_files(db, uses);
  if (counted.ok()) counted = responses_.count_bytes(db, uses);
  if (counted.ok()) budget_.replace(uses);
  if (counted.ok()) counted = sweep_parts(db);
  if (!counted.ok()) log_debug("store: {}", counted.message());
}

Result<int64_t> Store::begin_new_epoch() {
  if (!is_shared()) return not_found("another server has taken the folder over");
  SKEIN_ASSIGN(
      const int64_t epoch,
      thread_.write_and_wait<int64_t>([node = node_of(options_)](Database& db) -> Result<int64_t> {
        SKEIN_TRY(end_dead_nodes(db).status());
        SKEIN_ASSIGN(const int64_t others,
                     db.integer("SELECT count(*) FROM nodes WHERE name = $1", {node.name}));
        if (others != 0) return not_found("another server is called '{}'", node.name);
        return insert_node(db, node);
      }));
  epoch_ = epoch;
  has_lost_epoch_ = false;
  return epoch;
}

void Store::end_epoch() {
  if (!is_shared() || epoch() == 0) return;
  const Status ended = thread_.write_and_wait([epoch = epoch_.exchange(0)](Database& db) -> Status {
    SKEIN_TRY(db.exec("UPDATE batch_lines SET epoch = NULL, alone = 0 WHERE epoch = $1", {epoch}));
    return db.exec("DELETE FROM nodes WHERE epoch = $1", {epoch});
  });
  if (!ended.ok()) log_warning("store: {}", ended.message());
}

int64_t Store::away_s() const {
  const TimeUs since_us = away_since_us_;
  const TimeUs away_us =
      std::max(since_us == 0 ? 0 : std::max<TimeUs>(1, steady_us() - since_us), thread_.stuck_us());
  return (away_us + kUsPerSecond - 1) / kUsPerSecond;
}

}  // namespace skein
