#include "server/store/response_store.h"

#include <algorithm>
#include <limits>
#include <memory>
#include <optional>
#include <utility>

#include "base/log.h"
#include "server/store/listing.h"
#include "server/store/response_rows.h"

namespace skein {
namespace {

// How often the time in which servers have run is written down.
constexpr int64_t kClockPeriodS = 600;
// How often the log hears of responses that are not kept.
constexpr int64_t kWordPeriodS = 10;

}  // namespace

// A response on its way in, with the bytes that it takes of the budget.
struct ResponseStore::Adding {
  NewResponse response;
  DoneStatus done;
  std::shared_ptr<void> stay;
  FileBudget& budget;
  bool holds_bytes = false;

  ~Adding() { give_up(); }
  void give_up() {
    if (std::exchange(holds_bytes, false)) budget.give_back_bytes(response.owner, response.bytes());
  }
  void settle() {
    if (std::exchange(holds_bytes, false)) budget.settle_bytes(response.owner, response.bytes());
  }
};

Status ResponseStore::check_waiting(uint64_t bytes) {
  const std::lock_guard lock(mutex_);
  if (waiting_ == 0 || waiting_ + bytes <= limits_.waiting_bytes) return {};
  return resource_exhausted("store: {} bytes of responses wait for the disk, at most {}", waiting_,
                            limits_.waiting_bytes);
}

void ResponseStore::tell_unkept(const std::string& id, const Status& why) {
  uint64_t others = 0;
  {
    const std::lock_guard lock(mutex_);
    const int64_t now_s = steady_s_();
    if (now_s < next_word_s_) {
      ++untold_;
      return;
    }
    next_word_s_ = now_s + kWordPeriodS;
    others = std::exchange(untold_, 0);
  }
  log_warning("{} is not kept: {} ({} others before it)", id, why.message(), others);
}

void ResponseStore::add(NewResponse response, DoneStatus told) {
  const DoneStatus done = [this, id = response.id, told = std::move(told)](const Status& status) {
    if (!status.ok()) tell_unkept(id, status);
    told(status);
  };
  if (Status status = check_waiting(response.bytes()); !status.ok()) return done(status);
  std::shared_ptr<void> stay = enter(response.bytes());
  if (stay == nullptr) return done(unavailable("store: it is closing"));
  const std::shared_ptr<Adding> adding(
      new Adding{std::move(response), done, std::move(stay), budget_});
  Status status = budget_.take_bytes(adding->response.owner, adding->response.bytes());
  if (!status.ok()) return adding->done(std::move(status));
  adding->holds_bytes = true;
  add_piece(adding);
}

void ResponseStore::add_piece(const std::shared_ptr<Adding>& adding) {
  thread_.write<ResponseAdded>(
      [adding, limits = limits_, served_s = served_s()](Database& db) {
        return make_room_and_add(db, adding->response, limits, served_s);
      },
      [this, adding](const Result<ResponseAdded>& outcome) {
        if (outcome.ok()) settle(outcome->removal.freed, outcome->removal.has_marked);
        if (outcome.ok() && !outcome->is_in) return add_piece(adding);
        if (outcome.ok()) {
          adding->settle();  // they are the row's now
          next_expiry_s_ = std::min(next_expiry_s_.load(), served_s() + lifetime_s());
        } else {
          adding->give_up();
          may_be_orphaned_ = true;
        }
        adding->done(outcome.status());
      });
  thread_.hurry();
}

std::shared_ptr<void> ResponseStore::enter(uint64_t bytes) {
  {
    const std::lock_guard lock(mutex_);
    if (is_closed_) return nullptr;
    ++under_way_;
    waiting_ += bytes;
  }
  return {this, [this, bytes](void*) {
            const std::lock_guard lock(mutex_);
            waiting_ -= bytes;
            if (--under_way_ == 0) idle_.notify_all();
          }};
}

void ResponseStore::close() {
  std::unique_lock lock(mutex_);
  is_closed_ = true;
  idle_.wait(lock, [this] { return under_way_ == 0; });
}

int64_t ResponseStore::lifetime_s() const {
  constexpr int64_t kDayS = int64_t{24} * 3600;
  return static_cast<int64_t>(limits_.lifetime_days) * kDayS;
}

void ResponseStore::settle(const Freed& freed, bool has_marked) {
  for (const auto& [owner, bytes] : freed) budget_.remove(owner, {0, bytes});
  if (has_marked) may_be_orphaned_ = true;
}

void ResponseStore::get(const std::string& id, const Scope& scope, Done<std::string> done) {
  thread_.read<std::string>(
      [id, scope, oldest_s = oldest_s()](Database& db) -> Result<std::string> {
        SKEIN_ASSIGN(const ResponseRow row, find_response(db, id, scope, oldest_s));
        SKEIN_ASSIGN(
            std::vector<std::string> text,
            db.list<std::string>("SELECT head, output, tail FROM responses WHERE seq = $1",
                                 {row.seq}, [](const Cursor& parts) {
                                   return parts.text(0).append(parts.text(1)).append(parts.text(2));
                                 }));
        if (text.empty()) return data_loss("store: the response {} is gone", row.seq);
        return std::move(text.front());
      },
      std::move(done));
}

void ResponseStore::conversation(const std::string& id, const Scope& scope,
                                 Done<std::vector<ConversationTurn>> done) {
  std::shared_ptr<void> stay = enter();
  if (stay == nullptr) return done(unavailable("store: it is closing"));
  thread_.read<std::vector<ConversationTurn>>(
      job_of(read_conversation, id, scope, limits_, oldest_s()),
      [stay = std::move(stay), done = std::move(done)](
          Result<std::vector<ConversationTurn>> turns) { done(std::move(turns)); });
}

void ResponseStore::turns(std::vector<std::string> ids, const Scope& scope,
                          Done<std::vector<ConversationTurn>> done) {
  std::shared_ptr<void> stay = enter();
  if (stay == nullptr) return done(unavailable("store: it is closing"));
  thread_.read<std::vector<ConversationTurn>>(
      [ids = std::move(ids), scope, limits = limits_, oldest_s = oldest_s()](Database& db) {
        return read_turns(db, ids, scope, limits, oldest_s);
      },
      [stay = std::move(stay), done = std::move(done)](
          Result<std::vector<ConversationTurn>> turns) { done(std::move(turns)); });
}

void ResponseStore::remove(const std::string& id, const Scope& scope, DoneStatus done) {
  thread_.write_freeing<ResponseRemoval>(
      [id, scope, oldest_s = oldest_s()](Database& db) -> Result<ResponseRemoval> {
        ResponseRemoval removal;
        SKEIN_TRY(db.be_alone());
        SKEIN_ASSIGN(ResponseRow row, find_response(db, id, scope, oldest_s));
        SKEIN_TRY(drop_response(db, std::move(row), 0, removal));
        return removal;
      },
      [this, done = std::move(done)](const Result<ResponseRemoval>& removal) {
        if (removal.ok()) settle(removal->freed, removal->has_marked);
        done(removal.status());
      });
}

Status ResponseStore::sweep(Database& db) {
  if (!has_begun_) return {};
  SKEIN_TRY(note_time(db));
  SKEIN_TRY(sweep_old(db));
  if (may_be_revoked_.exchange(false)) {
    const auto dropped = sweep_some(
        db, "hidden = 0 AND owner IN (SELECT id FROM keys WHERE revoked_at IS NOT NULL)", {});
    if (!dropped.ok() || *dropped > 0) may_be_revoked_ = true;
    SKEIN_TRY(dropped.status());
  }
  {
    const std::lock_guard lock(mutex_);
    if (under_way_ > 0) return {};  // what it continues may be hidden already
  }
  if (!may_be_orphaned_.exchange(false)) return {};
  const auto dropped = sweep_some(db,
                                  "hidden = 2 OR (hidden = 1 AND NOT EXISTS (SELECT 1 FROM "
                                  "responses AS next WHERE next.previous = responses.seq))",
                                  {});
  if (!dropped.ok() || *dropped > 0) may_be_orphaned_ = true;
  return dropped.status();
}

Status ResponseStore::sweep_old(Database& db) {
  if (served_s() < next_expiry_s_) return {};
  SKEIN_ASSIGN(const int64_t dropped,
               sweep_some(db, "hidden = 0 AND served_s <= $1", {oldest_s()}));
  if (dropped > 0) return {};
  SKEIN_ASSIGN(const std::vector<int64_t> oldest,
               db.list<int64_t>("SELECT served_s FROM responses WHERE hidden = 0 ORDER BY "
                                "served_s LIMIT 1",
                                {}, [](const Cursor& row) { return row.integer(0); }));
  next_expiry_s_ =
      oldest.empty() ? std::numeric_limits<int64_t>::max() : oldest.front() + lifetime_s();
  return {};
}

// How many there were.
Result<int64_t> ResponseStore::sweep_some(Database& db, std::string_view condition,
                                          SqlValues values) {
  SKEIN_ASSIGN(const std::vector<ResponseRow> rows,
               db.list<ResponseRow>(fmt::format("SELECT {} FROM responses WHERE {} LIMIT {}",
                                                kResponseColumns, condition, kRowsOfAJob),
                                    values, response_row_of));
  if (rows.empty()) return 0;
  ResponseRemoval removal;
  SKEIN_TRY(db.transaction([&]() -> Status {
    SKEIN_TRY(db.be_alone());
    for (const ResponseRow& row : rows) {
      if (removal.left <= 0) return {};
      SKEIN_ASSIGN(std::optional<ResponseRow> there, response_row_at(db, row.seq));
      // One before it may have taken it along.
      if (there) SKEIN_TRY(drop_response(db, std::move(*there), 0, removal));
    }
    return {};
  }));
  settle(removal.freed, removal.has_marked);
  return static_cast<int64_t>(rows.size());
}

// A server that keeps nothing writes nothing.
Status ResponseStore::note_time(Database& db) {
  const int64_t now_s = served_s();
  if (now_s < next_note_s_ || next_expiry_s_ == std::numeric_limits<int64_t>::max()) return {};
  SKEIN_TRY(db.exec("UPDATE served_time SET seconds = $1 WHERE seconds < $1", {now_s}));
  next_note_s_ = now_s + kClockPeriodS;
  return {};
}

Status ResponseStore::read_time(Database& db) {
  SKEIN_ASSIGN(const int64_t noted_s, db.integer("SELECT seconds FROM served_time", {}));
  SKEIN_ASSIGN(const int64_t latest_s,
               db.integer("SELECT coalesce(max(served_s), 0) FROM responses", {}));
  served_before_s_ = std::max(noted_s, latest_s);
  next_note_s_ = served_before_s_ + kClockPeriodS;
  has_begun_ = true;
  return {};
}

Status ResponseStore::count_bytes(Database& db, std::map<std::string, FileUse>& uses) {
  return db
      .list<bool>("SELECT owner, bytes FROM response_use WHERE bytes > 0", {},
                  [&uses](const Cursor& row) {
                    uses[row.text(0)].bytes += static_cast<uint64_t>(row.integer(1));
                    return true;
                  })
      .status();
}

}  // namespace skein
