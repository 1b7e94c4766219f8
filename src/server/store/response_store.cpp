#include "server/store/response_store.h"

#include <algorithm>
#include <limits>
#include <memory>
#include <optional>
#include <utility>

#include "server/store/listing.h"

namespace skein {
namespace {

// Rows that one job removes at most, so that nobody waits long for the store.
constexpr int64_t kPiece = 256;

// How often the time in which servers have run is written down.
constexpr int64_t kClockPeriodS = 600;

using Freed = std::map<std::string, uint64_t>;

// What a job removes. Where a conversation has more rows than are left to it, the next row to go is
// marked (hidden = 2): nothing finds or continues it, and the sweep goes on there.
struct Removal {
  Freed freed;
  int64_t left = kPiece;
  bool has_marked = false;
};

struct ResponseRow {
  int64_t seq = 0;
  int64_t previous = 0;  // 0: none
  bool hidden = false;
  std::string owner;
  int64_t turns = 0;
  int64_t bytes = 0;
  int64_t chain_bytes = 0;
  int64_t conversation_bytes = 0;
};

constexpr const char* kRowColumns =
    "seq, previous, hidden, owner, turns, bytes, chain_bytes, conversation_bytes";

ResponseRow row_of(const Cursor& row) {
  return {row.integer(0), row.integer(1), row.integer(2) != 0, row.text(3),
          row.integer(4), row.integer(5), row.integer(6),      row.integer(7)};
}

Result<std::optional<ResponseRow>> row_at(Database& db, int64_t seq) {
  SKEIN_ASSIGN(
      const std::vector<ResponseRow> rows,
      db.list<ResponseRow>(fmt::format("SELECT {} FROM responses WHERE seq = $1", kRowColumns),
                           {seq}, row_of));
  return rows.empty() ? std::nullopt : std::optional(rows.front());
}

// One that can be asked for.
Result<ResponseRow> find_response(Database& db, const std::string& id, const Scope& scope,
                                  int64_t oldest_s) {
  SKEIN_ASSIGN(const std::vector<ResponseRow> rows,
               db.list<ResponseRow>(fmt::format("SELECT {} FROM responses WHERE {} AND id = $2 AND "
                                                "hidden = 0 AND served_s > $3",
                                                kRowColumns, owner_condition(scope)),
                                    {scope.owner, id, oldest_s}, row_of));
  if (rows.empty()) return not_found("there is no response with the id '{}'", id);
  return rows.front();
}

Result<bool> is_continued(Database& db, int64_t seq) {
  SKEIN_ASSIGN(const int64_t any,
               db.integer("SELECT EXISTS (SELECT 1 FROM responses WHERE previous = $1)", {seq}));
  return any != 0;
}

// What the owner is found to keep: responses that are not hidden, and bytes of all.
Status change_use(Database& db, const std::string& owner, int64_t kept, int64_t bytes) {
  return db.exec(
      "INSERT INTO response_use VALUES ($1, $2, $3) ON CONFLICT (owner) DO UPDATE SET kept = "
      "response_use.kept + excluded.kept, bytes = response_use.bytes + excluded.bytes",
      {owner, kept, bytes});
}

Status delete_row(Database& db, const ResponseRow& row, Removal& removal) {
  SKEIN_TRY(db.exec("DELETE FROM responses WHERE seq = $1", {row.seq}));
  SKEIN_TRY(change_use(db, row.owner, row.hidden ? 0 : -1, -row.bytes));
  removal.freed[row.owner] += static_cast<uint64_t>(row.bytes);
  --removal.left;
  return {};
}

// The response is not found any more. It goes, with the hidden ones that nothing needs then; or it
// is hidden where others continue it, or where one is about to (`needed`; 0: none is).
Status drop_response(Database& db, ResponseRow row, int64_t needed, Removal& removal) {
  SKEIN_ASSIGN(const bool continued, is_continued(db, row.seq));
  if (continued || row.seq == needed) {
    if (row.hidden) return {};
    SKEIN_TRY(db.exec("UPDATE responses SET hidden = 1 WHERE seq = $1", {row.seq}));
    return change_use(db, row.owner, -1, 0);
  }
  for (;;) {
    SKEIN_TRY(delete_row(db, row, removal));
    if (row.previous == 0 || row.previous == needed) return {};
    SKEIN_ASSIGN(std::optional<ResponseRow> before, row_at(db, row.previous));
    if (!before || !before->hidden) return {};
    SKEIN_ASSIGN(const bool is_needed, is_continued(db, before->seq));
    if (is_needed) return {};
    if (removal.left <= 0) {
      removal.has_marked = true;
      return db.exec("UPDATE responses SET hidden = 2 WHERE seq = $1", {before->seq});
    }
    row = std::move(*before);
  }
}

struct ResponseUse {
  uint64_t kept = 0;
  uint64_t bytes = 0;
};

Result<ResponseUse> use_of(Database& db, const std::string& owner) {
  SKEIN_ASSIGN(const std::vector<ResponseUse> uses,
               db.list<ResponseUse>("SELECT kept, bytes FROM response_use WHERE owner = $1",
                                    {owner}, [](const Cursor& row) {
                                      return ResponseUse{static_cast<uint64_t>(row.integer(0)),
                                                         static_cast<uint64_t>(row.integer(1))};
                                    }));
  return uses.empty() ? ResponseUse{} : uses.front();
}

Result<ResponseRow> row_to_continue(Database& db, const NewResponse& response) {
  if (response.previous.empty()) return ResponseRow{};
  SKEIN_ASSIGN(
      const std::vector<ResponseRow> rows,
      db.list<ResponseRow>(
          fmt::format("SELECT {} FROM responses WHERE owner = $1 AND id = $2 AND hidden < 2",
                      kRowColumns),
          {response.owner, response.previous}, row_of));
  if (rows.empty()) return not_found("the response '{}' was removed", response.previous);
  return rows.front();
}

Status insert_response(Database& db, const NewResponse& response, const ResponseRow& before,
                       int64_t served_s) {
  const auto bytes = static_cast<int64_t>(response.bytes());
  const auto said = static_cast<int64_t>(response.input.size() + response.output.size());
  SKEIN_TRY(db.exec(
      "INSERT INTO responses (id, owner, previous, served_s, turns, bytes, chain_bytes, "
      "conversation_bytes, input, output, head, tail) VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, "
      "$10, $11, $12)",
      {response.id, response.owner, before.seq == 0 ? SqlValue{} : SqlValue{before.seq}, served_s,
       before.turns + 1, bytes, before.chain_bytes + bytes, before.conversation_bytes + said,
       response.input, response.output, response.head, response.tail}));
  return change_use(db, response.owner, 1, bytes);
}

struct AddOutcome {
  bool is_in = false;  // else there is more to remove first
  Removal removal;
};

// What gives way next: what is marked, then the owner's oldest.
Result<std::vector<ResponseRow>> next_to_go(Database& db, const std::string& owner) {
  SKEIN_ASSIGN(std::vector<ResponseRow> marked,
               db.list<ResponseRow>(
                   fmt::format("SELECT {} FROM responses WHERE owner = $1 AND hidden = 2 LIMIT 1",
                               kRowColumns),
                   {owner}, row_of));
  if (!marked.empty()) return marked;
  return db.list<ResponseRow>(fmt::format("SELECT {} FROM responses WHERE owner = $1 AND hidden = "
                                          "0 ORDER BY seq LIMIT 1",
                                          kRowColumns),
                              {owner}, row_of);
}

// Makes room, a piece of it at a time, and adds the response where there is enough.
Result<AddOutcome> make_room_and_add(Database& db, const NewResponse& response,
                                     const ResponseLimits& limits, int64_t served_s) {
  AddOutcome outcome;
  SKEIN_ASSIGN(const int64_t revoked,
               db.integer("SELECT count(*) FROM keys WHERE id = $1 AND revoked_at IS NOT NULL",
                          {response.owner}));
  if (revoked != 0) return not_found("the key '{}' was revoked", response.owner);
  SKEIN_ASSIGN(const ResponseRow before, row_to_continue(db, response));
  const uint64_t whole = static_cast<uint64_t>(before.chain_bytes) + response.bytes();
  if (whole > limits.bytes_per_key) {
    return out_of_range("the response has {} bytes with its conversation, and a key keeps {}",
                        whole, limits.bytes_per_key);
  }
  if (limits.per_key == 0) return out_of_range("no responses are kept");
  for (int64_t dropped = 0;; ++dropped) {
    SKEIN_ASSIGN(const ResponseUse use, use_of(db, response.owner));
    if (use.kept < limits.per_key && use.bytes + response.bytes() <= limits.bytes_per_key) break;
    if (dropped == kPiece || outcome.removal.left <= 0) return outcome;
    SKEIN_ASSIGN(const std::vector<ResponseRow> next, next_to_go(db, response.owner));
    // What is left is hidden: this one continues it, or others that are being added.
    if (next.empty()) return unavailable("store: conversations under way leave no room");
    SKEIN_TRY(drop_response(db, next.front(), before.seq, outcome.removal));
  }
  SKEIN_TRY(insert_response(db, response, before, served_s));
  outcome.is_in = true;
  return outcome;
}

Result<std::vector<ConversationTurn>> read_conversation(Database& db, const std::string& id,
                                                        const Scope& scope,
                                                        const ResponseLimits& limits,
                                                        int64_t oldest_s) {
  SKEIN_ASSIGN(const ResponseRow last, find_response(db, id, scope, oldest_s));
  if (static_cast<uint64_t>(last.turns) > limits.turns) {
    return out_of_range("The conversation has {} responses, and {} is the most.", last.turns,
                        limits.turns);
  }
  if (static_cast<uint64_t>(last.conversation_bytes) > limits.conversation_bytes) {
    return out_of_range("The conversation has {} bytes, and {} is the most.",
                        last.conversation_bytes, limits.conversation_bytes);
  }
  std::vector<ConversationTurn> turns;
  for (int64_t seq = last.seq; seq != 0;) {
    int64_t before = 0;
    SKEIN_ASSIGN(std::vector<ConversationTurn> turn,
                 db.list<ConversationTurn>(
                     "SELECT previous, id, input, output FROM responses WHERE seq = $1", {seq},
                     [&before](const Cursor& row) {
                       before = row.integer(0);
                       return ConversationTurn{row.text(1), row.text(2), row.text(3)};
                     }));
    if (turn.empty()) return data_loss("store: the response {} is gone", seq);
    turns.push_back(std::move(turn.front()));
    seq = before;
  }
  std::reverse(turns.begin(), turns.end());
  return turns;
}

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
    if (std::exchange(holds_bytes, false)) budget.remove(response.owner, {0, response.bytes()});
  }
};

void ResponseStore::add(NewResponse response, DoneStatus done) {
  std::shared_ptr<void> stay = enter();
  if (stay == nullptr) return done(unavailable("store: it is closing"));
  const std::shared_ptr<Adding> adding(
      new Adding{std::move(response), std::move(done), std::move(stay), budget_});
  Status status = budget_.take_bytes(adding->response.owner, adding->response.bytes());
  if (!status.ok()) return adding->done(std::move(status));
  adding->holds_bytes = true;
  add_piece(adding);
}

void ResponseStore::add_piece(const std::shared_ptr<Adding>& adding) {
  thread_.write<AddOutcome>(
      [adding, limits = limits_, served_s = served_s()](Database& db) {
        return make_room_and_add(db, adding->response, limits, served_s);
      },
      [this, adding](const Result<AddOutcome>& outcome) {
        if (outcome.ok()) settle(outcome->removal.freed, outcome->removal.has_marked);
        if (outcome.ok() && !outcome->is_in) return add_piece(adding);
        if (outcome.ok()) {
          adding->holds_bytes = false;  // they are the row's now
          next_expiry_s_ = std::min(next_expiry_s_.load(), served_s() + lifetime_s());
        } else {
          adding->give_up();
          may_be_orphaned_ = true;
        }
        adding->done(outcome.status());
      });
  thread_.hurry();
}

std::shared_ptr<void> ResponseStore::enter() {
  {
    const std::lock_guard lock(mutex_);
    if (is_closed_) return nullptr;
    ++under_way_;
  }
  return {this, [this](void*) {
            const std::lock_guard lock(mutex_);
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

void ResponseStore::remove(const std::string& id, const Scope& scope, DoneStatus done) {
  thread_.write_freeing<Removal>(
      [id, scope, oldest_s = oldest_s()](Database& db) -> Result<Removal> {
        Removal removal;
        SKEIN_ASSIGN(ResponseRow row, find_response(db, id, scope, oldest_s));
        SKEIN_TRY(drop_response(db, std::move(row), 0, removal));
        return removal;
      },
      [this, done = std::move(done)](const Result<Removal>& removal) {
        if (removal.ok()) settle(removal->freed, removal->has_marked);
        done(removal.status());
      });
}

Status ResponseStore::sweep(Database& db) {
  if (!has_counted_) return {};
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
                                                kRowColumns, condition, kPiece),
                                    values, row_of));
  if (rows.empty()) return 0;
  Removal removal;
  SKEIN_TRY(db.transaction([&]() -> Status {
    for (const ResponseRow& row : rows) {
      if (removal.left <= 0) return {};
      SKEIN_ASSIGN(std::optional<ResponseRow> there, row_at(db, row.seq));
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
  SKEIN_TRY(db.exec("UPDATE served_time SET seconds = $1", {now_s}));
  next_note_s_ = now_s + kClockPeriodS;
  return {};
}

Status ResponseStore::count(Database& db) {
  SKEIN_ASSIGN(const int64_t noted_s, db.integer("SELECT seconds FROM served_time", {}));
  SKEIN_ASSIGN(const int64_t latest_s,
               db.integer("SELECT coalesce(max(served_s), 0) FROM responses", {}));
  served_before_s_ = std::max(noted_s, latest_s);
  next_note_s_ = served_before_s_ + kClockPeriodS;
  SKEIN_TRY(db.list<bool>("SELECT owner, bytes FROM response_use WHERE bytes > 0", {},
                          [this](const Cursor& row) {
                            budget_.add(row.text(0), {0, static_cast<uint64_t>(row.integer(1))});
                            return true;
                          })
                .status());
  has_counted_ = true;
  return {};
}

}  // namespace skein
