#include "server/store/postgres/postgres_database.h"

#include <libpq-fe.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <charconv>
#include <cstdlib>
#include <poll.h>
#include <utility>

#include "base/log.h"
#include "server/store/postgres/postgres_text.h"

namespace skein {
namespace {

using std::chrono::steady_clock;

constexpr std::chrono::seconds kTryAgainAfter{1};
constexpr std::chrono::seconds kConnectWithin{3};  // each host
constexpr std::chrono::milliseconds kLook{100};
constexpr std::chrono::milliseconds kLastMoment{500};
constexpr int64_t kLeastAnswerMs = 10'000;
constexpr std::chrono::seconds kPollEvery{1};
// The types that parameters have, by PostgreSQL's numbers.
constexpr Oid kInt8 = 20, kText = 25, kBytes = 17, kBool = 16;
constexpr int kBinary = 1;

// A broken line is noticed within seconds; nothing of a server that was stopped stays locked.
constexpr const char* kSession =
    "SET client_encoding = 'UTF8'; SET synchronous_commit = on; SET statement_timeout = {1}; SET "
    "lock_timeout = {0}; SET idle_in_transaction_session_timeout = {0}; SET "
    "default_transaction_isolation = 'read committed'; SET client_min_messages = warning; SET "
    "jit = off; LISTEN skein";
constexpr const char* kVersionTable =
    "SELECT pg_advisory_lock(7355607); CREATE TABLE IF NOT EXISTS skein_version (n BIGINT NOT "
    "NULL); INSERT INTO skein_version SELECT 0 WHERE NOT EXISTS (SELECT 1 FROM skein_version); "
    "SELECT pg_advisory_unlock(7355607)";

bool is_fine(const pg_result* result) {
  const ExecStatusType status = PQresultStatus(result);
  return status == PGRES_COMMAND_OK || status == PGRES_TUPLES_OK;
}

std::string_view trimmed(std::string_view text) {
  while (text.ends_with('\n')) text.remove_suffix(1);
  return text;
}

Code code_of(std::string_view state) {
  if (state == "53100") return Code::kResourceExhausted;  // disk full
  if (state == "23505") return Code::kAlreadyExists;
  if (state.starts_with("XX00")) return state == "XX000" ? Code::kInternal : Code::kDataLoss;
  // Connections, resources, conflicts, what an operator does, a standby that takes no writes, and
  // what the store's own triggers refuse for now.
  for (const std::string_view passing :
       {"08", "40", "53", "55", "57", "25006", "25P03", "58", "SK"}) {
    if (state.starts_with(passing)) return Code::kUnavailable;
  }
  return Code::kInternal;
}

Oid type_of(const SqlValue& value) {
  constexpr std::array<Oid, 4> kTypes = {0, kInt8, kText, kBytes};
  return kTypes.at(value.index());
}

std::string big_endian(int64_t value) {
  std::string bytes(sizeof(value), '\0');
  for (size_t i = 0; i < sizeof(value); ++i) {
    bytes[i] = static_cast<char>(static_cast<uint64_t>(value) >> (56 - 8 * i));
  }
  return bytes;
}

// How long an answer may take. PostgreSQL itself ends a statement a second before that.
std::chrono::milliseconds answer_within(int64_t patience_ms) {
  return std::chrono::milliseconds(std::max(2 * patience_ms, kLeastAnswerMs));
}

}  // namespace

void PostgresDatabase::Clear::operator()(pg_result* result) const {
  PQclear(result);
}

// The parameters of one run; what they point to lives as long.
class PostgresDatabase::Parameters {
 public:
  explicit Parameters(std::span<const SqlValue> values) {
    held_.reserve(values.size());
    for (const SqlValue& value : values) add(value);
  }
  int send(pg_conn* connection, const char* statement) const {
    return PQsendQueryPrepared(connection, statement, static_cast<int>(held_.size()),
                               pointers_.data(), lengths_.data(), formats_.data(), kBinary);
  }

 private:
  void add(const SqlValue& value) {
    held_.emplace_back();
    if (const auto* integer = std::get_if<int64_t>(&value)) {
      held_.back() = big_endian(*integer);
    } else if (const auto* text = std::get_if<std::string_view>(&value)) {
      held_.back() = to_postgres_text(*text);
    } else if (const auto* bytes = std::get_if<std::span<const std::byte>>(&value)) {
      held_.back().assign(reinterpret_cast<const char*>(bytes->data()), bytes->size());
    }
    const bool is_null = std::holds_alternative<std::monostate>(value);
    pointers_.push_back(is_null ? nullptr : held_.back().data());
    lengths_.push_back(static_cast<int>(held_.back().size()));
    formats_.push_back(kBinary);
  }

  std::vector<std::string> held_;  // reserved: texts stay where they are
  std::vector<const char*> pointers_;
  std::vector<int> lengths_;
  std::vector<int> formats_;
};

class PostgresDatabase::Rows final : public Cursor {
 public:
  explicit Rows(Answer answer) : answer_(std::move(answer)) {}

  Result<bool> next() override { return ++row_ < PQntuples(answer_.get()); }
  int64_t changes() const override {
    const std::string_view count = PQcmdTuples(answer_.get());
    int64_t changes = 0;
    std::from_chars(count.data(), count.data() + count.size(), changes);
    return changes;
  }
  int64_t integer(int column) const override {
    const std::string_view bytes = raw(column);
    const Oid type = PQftype(answer_.get(), column);
    SKEIN_CHECK(type != kText && type != kBytes && bytes.size() <= sizeof(int64_t),
                "column {} has the type {}, which is no integer", column, type);
    if (bytes.empty()) return 0;
    uint64_t value = type != kBool && (bytes.front() & '\x80') != 0 ? ~uint64_t{0} : 0;
    for (const char c : bytes) value = value << 8 | static_cast<uint8_t>(c);
    return static_cast<int64_t>(value);
  }
  std::string text(int column) const override {
    return PQftype(answer_.get(), column) == kText ? from_postgres_text(raw(column))
                                                   : std::string(raw(column));
  }

 private:
  std::string_view raw(int column) const {
    return {PQgetvalue(answer_.get(), row_, column),
            static_cast<size_t>(PQgetlength(answer_.get(), row_, column))};
  }

  Answer answer_;
  int row_ = -1;
};

void PostgresDatabase::Finish::operator()(pg_conn* connection) const {
  PQfinish(connection);
}

Result<std::unique_ptr<PostgresDatabase>> PostgresDatabase::open(const std::string& url,
                                                                 int64_t patience_ms) {
  SKEIN_TRY(check_postgres_url(url));
  std::unique_ptr<PostgresDatabase> db(new PostgresDatabase(url, patience_ms));
  SKEIN_TRY(db->connect());
  const std::string_view encoding = PQparameterStatus(db->connection_.get(), "server_encoding");
  if (encoding != "UTF8") {
    return invalid_argument("store: the database has the encoding {}, and must have UTF8",
                            encoding);
  }
  SKEIN_TRY(db->exec(kVersionTable));
  return db;
}

PostgresDatabase::~PostgresDatabase() = default;

// What the URL says goes before these.
Status PostgresDatabase::connect() {
  const std::array keys = {
      "connect_timeout",  "tcp_user_timeout", "keepalives_idle", "keepalives_interval",
      "keepalives_count", "application_name", "dbname",          static_cast<const char*>(nullptr)};
  const std::array values = {"3", "5000",  "5",          "2",
                             "3", "skein", url_.c_str(), static_cast<const char*>(nullptr)};
  statements_.clear();
  connection_.reset(PQconnectdbParams(keys.data(), values.data(), 1));
  next_try_ = steady_clock::now() + kTryAgainAfter;
  changed_elsewhere_ = true;
  if (!is_connected()) {
    return unavailable("store: {}", trimmed(PQerrorMessage(connection_.get())));
  }
  PQsetNoticeProcessor(
      connection_.get(), [](void*, const char* text) { log_debug("store: {}", trimmed(text)); },
      nullptr);
  PQsetnonblocking(connection_.get(), 1);
  const auto most_ms = answer_within(patience_ms_).count() - 1000;
  const Answer set =
      answer(PQsendQuery(connection_.get(), fmt::format(kSession, patience_ms_, most_ms).c_str()));
  return is_fine(set.get()) ? Status{} : failure(set.get());
}

bool PostgresDatabase::is_connected() const {
  return PQstatus(connection_.get()) == CONNECTION_OK;
}

Status PostgresDatabase::ready() {
  if (is_inside_ && !in_transaction()) return unavailable("store: PostgreSQL went away");
  if (is_connected()) return {};
  const auto now = steady_clock::now();
  if (now < next_try_ || now + kConnectWithin > finish_by_.load()) {
    return unavailable("store: PostgreSQL is away");
  }
  SKEIN_TRY(connect());
  log_info("store: PostgreSQL is there again");
  return {};
}

Status PostgresDatabase::failure(const pg_result* result) {
  const char* state = PQresultErrorField(result, PG_DIAG_SQLSTATE);
  const std::string_view known = state == nullptr ? "08006" : state;
  gave_way_ = known == "40001" || known == "40P01";
  // Such a server takes no writes any more; another may, and the next connection looks for it.
  if (known == "25006" || known.starts_with("57P")) connection_ = nullptr;
  const std::string_view text = result != nullptr        ? PQresultErrorMessage(result)
                                : connection_ != nullptr ? PQerrorMessage(connection_.get())
                                                         : "PostgreSQL does not answer";
  return {code_of(known), fmt::format("store: {} (PostgreSQL {})", trimmed(text), known)};
}

bool PostgresDatabase::wait_for(short events, steady_clock::time_point began) const {
  for (;;) {
    const auto until = std::min(began + answer_within(patience_ms_),
                                std::max(finish_by_.load(), began + kLastMoment));
    const auto left = std::chrono::ceil<std::chrono::milliseconds>(until - steady_clock::now());
    if (left.count() <= 0) return false;
    pollfd socket{PQsocket(connection_.get()), events, 0};
    const int ready = ::poll(&socket, 1, static_cast<int>(std::min(left, kLook).count()));
    if (ready > 0) return true;
    if (ready < 0 && errno != EINTR) return false;
  }
}

PostgresDatabase::Answer PostgresDatabase::answer(int sent) {
  const auto began = steady_clock::now();
  pg_conn* const connection = connection_.get();
  Answer last;
  int unsent = sent == 1 ? PQflush(connection) : -1;
  while (sent == 1) {
    if (unsent <= 0 && PQisBusy(connection) == 0) {
      Answer next(PQgetResult(connection));
      if (next == nullptr) return last;
      last = std::move(next);
      continue;
    }
    if (!wait_for(static_cast<short>(unsent > 0 ? POLLIN | POLLOUT : POLLIN), began)) {
      connection_ = nullptr;
      return nullptr;
    }
    // Where the line is broken the result says so.
    (void)PQconsumeInput(connection);
    if (unsent > 0) unsent = PQflush(connection);
  }
  return last;
}

Status PostgresDatabase::exec(const std::string& sql) {
  SKEIN_TRY(ready());
  if (sql.starts_with("BEGIN")) gave_way_ = is_in_doubt_ = false;
  const Answer done = answer(PQsendQuery(connection_.get(), sql.c_str()));
  if (is_fine(done.get())) {
    if (sql.starts_with("BEGIN")) is_inside_ = true;
    // What had a fault in it is rolled back by its COMMIT, without a word.
    if (sql != "COMMIT" || std::string_view(PQcmdStatus(done.get())) == "COMMIT") return {};
    return internal_error("store: a transaction with a fault in it was committed");
  }
  Status failed = failure(done.get());
  if (sql == "COMMIT" && !is_connected()) is_in_doubt_ = true;
  return failed;
}

Result<std::string> PostgresDatabase::prepare(std::string_view sql,
                                              std::span<const SqlValue> values) {
  std::string key(sql);
  std::vector<Oid> types;
  for (const SqlValue& value : values) {
    types.push_back(type_of(value));
    key += fmt::format(" {}", types.back());
  }
  const auto [entry, added] = statements_.try_emplace(key, fmt::format("s{}", statements_.size()));
  if (!added) return entry->second;
  const Answer prepared =
      answer(PQsendPrepare(connection_.get(), entry->second.c_str(), std::string(sql).c_str(),
                           static_cast<int>(types.size()), types.data()));
  if (is_fine(prepared.get())) return entry->second;
  statements_.erase(entry);
  return failure(prepared.get());
}

Result<std::unique_ptr<Cursor>> PostgresDatabase::query(std::string_view sql,
                                                        std::span<const SqlValue> values) {
  SKEIN_TRY(ready());
  SKEIN_ASSIGN(const std::string statement, prepare(sql, values));
  Answer rows = answer(Parameters(values).send(connection_.get(), statement.c_str()));
  if (!is_fine(rows.get())) return failure(rows.get());
  return std::unique_ptr<Cursor>(std::make_unique<Rows>(std::move(rows)));
}

bool PostgresDatabase::in_transaction() const {
  const PGTransactionStatusType status = PQtransactionStatus(connection_.get());
  return status == PQTRANS_INTRANS || status == PQTRANS_INERROR;
}

void PostgresDatabase::watch_table(std::string table) {
  touched_.emplace(std::move(table), false);
}

// The triggers of watched tables tell their names. What this connection did comes with its commit.
void PostgresDatabase::read_notices() {
  if (connection_ == nullptr || PQconsumeInput(connection_.get()) == 0) return;
  for (;;) {
    const std::unique_ptr<PGnotify, void (*)(void*)> told(PQnotifies(connection_.get()), PQfreemem);
    if (told == nullptr) return;
    if (told->be_pid != PQbackendPID(connection_.get())) {
      changed_elsewhere_ = true;
    } else if (const auto table = touched_.find(told->extra); table != touched_.end()) {
      table->second = true;
    }
  }
}

bool PostgresDatabase::take_touched(std::string_view table) {
  read_notices();
  const auto watched = touched_.find(table);
  return watched != touched_.end() && std::exchange(watched->second, false);
}

// Also where no notice comes, as through a pool of connections.
Result<int64_t> PostgresDatabase::version_of_changes() {
  return integer("SELECT n FROM changes");
}

bool PostgresDatabase::has_news() {
  read_notices();
  return changed_elsewhere_ && is_connected();
}

int PostgresDatabase::news_socket() const {
  return is_connected() ? PQsocket(connection_.get()) : -1;
}

Result<bool> PostgresDatabase::changed_elsewhere() {
  if (!is_connected() || steady_clock::now() >= next_poll_) {
    next_poll_ = steady_clock::now() + kPollEvery;
    SKEIN_ASSIGN(const int64_t changes, version_of_changes());
    if (std::exchange(seen_changes_, changes) != changes) changed_elsewhere_ = true;
  }
  read_notices();
  return std::exchange(changed_elsewhere_, false);
}

}  // namespace skein
