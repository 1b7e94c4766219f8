// BatchStore: lines and epochs.
#include <algorithm>
#include <nlohmann/json.hpp>
#include <string_view>

#include "base/log.h"
#include "server/store/batch_store.h"

namespace skein {
namespace {

constexpr const char* kDeleteLines =
    "DELETE FROM batch_lines WHERE batch = $1 AND line <= (SELECT max(line) FROM (SELECT line FROM "
    "batch_lines WHERE batch = $1 ORDER BY line LIMIT $2) AS piece)";

// The lines that nobody has, that were at no death, have no result and can be run here.
constexpr const char* kClaimLines = R"sql(
UPDATE batch_lines SET epoch = $1
WHERE batch = $2
  AND line IN (SELECT line FROM batch_lines
               WHERE batch = $2 AND status_code IS NULL AND epoch IS NULL AND deaths = 0
                 AND (model IS NULL OR model {1})
               ORDER BY line LIMIT $3{0})
RETURNING batch, line, first_byte, bytes
)sql";

constexpr const char* kClaimSuspect = R"sql(
UPDATE batch_lines SET epoch = $1, alone = 1
WHERE batch = $2 AND line = $3 AND status_code IS NULL AND epoch IS NULL
)sql";

constexpr const char* kSuspectLines = R"sql(
SELECT l.batch, l.line, l.first_byte, l.bytes
FROM batch_lines l JOIN batches b ON b.seq = l.batch
WHERE l.deaths != 0 AND l.status_code IS NULL AND l.epoch IS NULL AND b.status = 'in_progress'
  AND (l.model IS NULL OR l.model {})
ORDER BY l.batch, l.line LIMIT $1
)sql";

constexpr const char* kFinishLine = R"sql(
UPDATE batch_lines SET status_code = $1, request_id = $2, body = $3, headers = $4, epoch = NULL,
  alone = 0
WHERE batch = $5 AND line = $6 AND epoch = $7 AND status_code IS NULL
)sql";

constexpr std::string_view kValidatingName = name_of(BatchStatus::kValidating);

constexpr const char* kCountLine = R"sql(
INSERT INTO batch_counts VALUES ($1, $2, $3, $4)
ON CONFLICT (batch, epoch) DO UPDATE
SET completed = batch_counts.completed + excluded.completed,
    failed = batch_counts.failed + excluded.failed
)sql";

// Lines that a server has whose epoch has ended.
#define SKEIN_LEFT_LINES                                                                   \
  "batch_lines.epoch IS NOT NULL AND NOT EXISTS (SELECT 1 FROM nodes WHERE nodes.epoch = " \
  "batch_lines.epoch)"

// Whether there is such a row, which stays as it is until the transaction ends.
Result<bool> holds(Database& db, std::string_view sql, SqlValues values) {
  SKEIN_ASSIGN(const std::vector<int64_t> rows,
               db.list<int64_t>(fmt::format("{}{}", sql, db.dialect().hold), values,
                                [](const Cursor& row) { return row.integer(0); }));
  return !rows.empty();
}

Status insert_line(Database& db, int64_t batch, const InputLine& line) {
  const LineResult& refusal = line.refusal;
  const bool refused = refusal.status_code != 0;
  const auto value = [refused](SqlValue v) { return refused ? v : SqlValue{}; };
  return db.exec(
      "INSERT INTO batch_lines (batch, line, custom_id, first_byte, bytes, status_code, "
      "request_id, body, model) VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9)",
      {batch, line.line, text_or_null(line.custom_id), static_cast<int64_t>(line.offset),
       static_cast<int64_t>(line.bytes), value(static_cast<int64_t>(refusal.status_code)),
       value(std::string_view(refusal.request_id)), value(std::string_view(refusal.body)),
       text_or_null(line.model)});
}

LinePlace place_of(const Cursor& row) {
  return {{row.integer(0), row.integer(1)},
          static_cast<uint64_t>(row.integer(2)),
          static_cast<uint64_t>(row.integer(3))};
}

// The parameter of SqlDialect::one_of.
std::string json_list(const std::vector<std::string>& texts) {
  using Json = nlohmann::json;
  return Json(texts).dump(-1, ' ', false, Json::error_handler_t::replace);
}

std::string one_of(const Database& db, const char* parameter) {
  return fmt::format(fmt::runtime(db.dialect().one_of), parameter);
}

Result<std::vector<LinePlace>> claim_share(Database& db, int64_t epoch, const LineShare& share,
                                           const std::string& models) {
  auto claimed =
      db.list<LinePlace>(fmt::format(kClaimLines, db.dialect().skip_locked, one_of(db, "$4")),
                         {epoch, share.batch, share.lines, models}, place_of);
  if (claimed.ok()) {  // they are returned in no order
    std::sort(claimed->begin(), claimed->end(),
              [](const LinePlace& a, const LinePlace& b) { return a.id < b.id; });
  }
  return claimed;
}

Status finish(Database& db, int64_t epoch, const LineId& id, const LineResult& result) {
  SKEIN_ASSIGN(
      const bool in_progress,
      holds(db, "SELECT seq FROM batches WHERE seq = $1 AND status = 'in_progress'", {id.batch}));
  if (!in_progress) return not_found("the batch of line {} is not in progress", id.line);
  SKEIN_ASSIGN(
      const int64_t changed,
      db.run(kFinishLine, {static_cast<int64_t>(result.status_code), result.request_id, result.body,
                           text_or_null(result.headers), id.batch, id.line, epoch}));
  if (changed == 0) {
    SKEIN_ASSIGN(const int64_t finished,
                 db.integer("SELECT count(*) FROM batch_lines WHERE batch = $1 AND line = $2 AND "
                            "status_code IS NOT NULL",
                            {id.batch, id.line}));
    if (finished != 0) return already_exists("line {} has its result", id.line);
    return not_found("epoch {} has no line {} of this batch", epoch, id.line);
  }
  const int64_t completed = result.status_code >= 200 && result.status_code < 300 ? 1 : 0;
  return db.exec(kCountLine, {id.batch, epoch, completed, 1 - completed});
}

struct Crashed {
  LineId id;
  std::string batch;
  int64_t epoch;
  int64_t deaths;
  int64_t alone;
};

LineResult crash_result(const Crashed& line) {
  return {
      500, "",
      fmt::format(R"({{"error": {{"message": "The server died {} times while this request ran, {} )"
                  R"(of them while no other line of a batch did; it is not tried again.", )"
                  R"("type": "server_error", "param": null, "code": "request_crashed_server"}}}})",
                  line.deaths, line.alone)};
}

Status count_deaths(Database& db) {
  SKEIN_TRY(
      db.exec("UPDATE batch_lines SET deaths = deaths + 1, alone_deaths = alone_deaths + alone "
              "WHERE status_code IS NULL AND " SKEIN_LEFT_LINES));
  SKEIN_ASSIGN(
      const std::vector<Crashed> crashed,
      db.list<Crashed>(
          "SELECT batch_lines.batch, line, b.id, batch_lines.epoch, deaths, alone_deaths FROM "
          "batch_lines JOIN batches b ON b.seq = batch_lines.batch WHERE status_code IS NULL AND "
          "b.status = 'in_progress' AND (deaths >= $1 OR alone_deaths >= $2) AND " SKEIN_LEFT_LINES,
          {kMaxDeaths, kMaxDeathsAlone}, [](const Cursor& row) {
            return Crashed{{row.integer(0), row.integer(1)},
                           row.text(2),
                           row.integer(3),
                           row.integer(4),
                           row.integer(5)};
          }));
  for (const Crashed& line : crashed) {
    log_error("batch {}, line {}: the server died {} times while it ran; it fails", line.batch,
              line.id.line, line.deaths);
    SKEIN_TRY(finish(db, line.epoch, line.id, crash_result(line)));
  }
  return {};
}

// Lines of servers whose epochs have ended are nobody's again; returns how many those were.
Result<int64_t> give_back_left_lines(Database& db, bool died) {
  if (died) SKEIN_TRY(count_deaths(db));
  return db.run("UPDATE batch_lines SET epoch = NULL, alone = 0 WHERE " SKEIN_LEFT_LINES);
}

}  // namespace

Result<int64_t> begin_epoch(Database& db, const NodeInfo& node, bool died) {
  const std::string& lives = db.dialect().lives;
  SKEIN_TRY(
      db.exec(fmt::format("DELETE FROM nodes WHERE name = $1 OR NOT ({})", lives), {node.name}));
  SKEIN_TRY(give_back_left_lines(db, died).status());
  return insert_node(db, node);
}

Result<int64_t> insert_node(Database& db, const NodeInfo& node) {
  return db.integer(
      fmt::format("INSERT INTO nodes (name, renewed_at, lease_until) VALUES ($1, $2, {}) RETURNING "
                  "epoch",
                  fmt::format(fmt::runtime(db.dialect().lease_end), "$3")),
      {node.name, node.now_s, node.lease_ms});
}

Result<int64_t> end_dead_nodes(Database& db) {
  // One that holds its row is in the middle of a transaction, and has a few seconds to end it.
  SKEIN_ASSIGN(const int64_t ended,
               db.run(fmt::format("DELETE FROM nodes WHERE epoch IN (SELECT epoch FROM nodes WHERE "
                                  "NOT ({}){})",
                                  db.dialect().lives, db.dialect().skip_locked)));
  if (ended == 0) return 0;
  SKEIN_ASSIGN(const int64_t lines, give_back_left_lines(db, true));
  log_warning("batches: {} servers let their leases end; {} of their lines are given to others",
              ended, lines);
  return ended;
}

Status check_epoch(Database& db, int64_t epoch) {
  SKEIN_ASSIGN(
      const bool lives,
      holds(db, fmt::format("SELECT epoch FROM nodes WHERE epoch = $1 AND {}", db.dialect().lives),
            {epoch}));
  return lives ? Status{} : not_found("the epoch {} has ended", epoch);
}

Status renew_node(Database& db, int64_t epoch, const NodeInfo& node) {
  SKEIN_ASSIGN(
      const int64_t renewed,
      db.run(
          fmt::format("UPDATE nodes SET renewed_at = $1, lease_until = {} WHERE epoch = "
                      "$3 AND {}",
                      fmt::format(fmt::runtime(db.dialect().lease_end), "$2"), db.dialect().lives),
          {node.now_s, node.lease_ms, epoch}));
  return renewed == 1 ? Status{} : not_found("the epoch {} has ended", epoch);
}

Status take_batch(Database& db, int64_t epoch, int64_t batch, std::string_view status) {
  SKEIN_TRY(check_epoch(db, epoch));
  SKEIN_ASSIGN(const bool has_it,
               holds(db, "SELECT seq FROM batches WHERE seq = $1 AND epoch = $2 AND status = $3",
                     {batch, epoch, status}));
  if (has_it) return {};
  SKEIN_ASSIGN(const int64_t taken,
               db.run("UPDATE batches SET epoch = $1 WHERE seq = $2 AND status = $3 AND (epoch IS "
                      "NULL OR NOT EXISTS (SELECT 1 FROM nodes WHERE nodes.epoch = batches.epoch))",
                      {epoch, batch, status}));
  return taken == 1 ? Status{} : not_found("the batch is not {}, or another server has it", status);
}

Result<bool> BatchStore::take(int64_t epoch, const OpenBatch& batch) {
  const Status taken =
      thread_.write_and_wait(job_of(take_batch, epoch, batch.seq, name_of(batch.record.status)));
  if (taken.ok()) return true;
  if (taken.code() != Code::kNotFound) return taken;
  // Whether it is the batch or the epoch that is gone.
  SKEIN_TRY(renew(epoch, {}));
  return false;
}

Result<int64_t> BatchStore::discard_lines(int64_t epoch, int64_t batch, int64_t limit) {
  return thread_.write_and_wait<int64_t>([=](Database& db) -> Result<int64_t> {
    SKEIN_TRY(take_batch(db, epoch, batch, kValidatingName));
    return db.run(kDeleteLines, {batch, limit});
  });
}

Status BatchStore::insert_lines(int64_t epoch, int64_t batch, std::span<const InputLine> lines) {
  return thread_.write_and_wait([=](Database& db) -> Status {
    SKEIN_TRY(take_batch(db, epoch, batch, kValidatingName));
    for (const InputLine& line : lines) SKEIN_TRY(insert_line(db, batch, line));
    return {};
  });
}

Result<std::vector<LinePlace>> BatchStore::claim_lines(int64_t epoch,
                                                       std::span<const LineShare> shares,
                                                       const std::vector<std::string>& models) {
  using Places = std::vector<LinePlace>;
  return await<Places>([&](Done<Places> done) {
    thread_.write<Places>(
        [epoch, shares, models = json_list(models)](Database& db) -> Result<Places> {
          SKEIN_TRY(check_epoch(db, epoch));
          Places all;
          for (const LineShare& share : shares) {
            SKEIN_ASSIGN(const Places claimed, claim_share(db, epoch, share, models));
            all.insert(all.end(), claimed.begin(), claimed.end());
          }
          return all;
        },
        std::move(done));
    thread_.hurry();  // somebody could be computing them
  });
}

Result<std::vector<LinePlace>> BatchStore::suspect_lines(const std::vector<std::string>& models,
                                                         int64_t limit) {
  return thread_.read_and_wait<std::vector<LinePlace>>(
      [limit, models = json_list(models)](Database& db) {
        return db.list<LinePlace>(fmt::format(kSuspectLines, one_of(db, "$2")), {limit, models},
                                  place_of);
      });
}

Status BatchStore::claim_suspect(int64_t epoch, const LineId& line) {
  return await_status([&](DoneStatus done) {
    thread_.write(
        [epoch, line](Database& db) -> Status {
          SKEIN_TRY(check_epoch(db, epoch));
          SKEIN_ASSIGN(const int64_t changed,
                       db.run(kClaimSuspect, {epoch, line.batch, line.line}));
          return changed == 1 ? Status{} : not_found("line {} is not to be had", line.line);
        },
        std::move(done));
    thread_.hurry();
  });
}

void BatchStore::finish_line(int64_t epoch, const LineId& line, LineResult result,
                             DoneStatus done) {
  thread_.write(job_of(finish, epoch, line, std::move(result)), std::move(done));
}

Status BatchStore::return_lines(int64_t epoch, std::span<const LineId> lines) {
  return thread_.write_and_wait([=](Database& db) -> Status {
    for (const LineId& line : lines) {
      SKEIN_TRY(
          db.exec("UPDATE batch_lines SET epoch = NULL, alone = 0 WHERE batch = $1 AND line = "
                  "$2 AND epoch = $3",
                  {line.batch, line.line, epoch}));
    }
    return {};
  });
}

Status BatchStore::return_all_lines(int64_t epoch) {
  return thread_.write_and_wait([epoch](Database& db) {
    return db.exec("UPDATE batch_lines SET epoch = NULL, alone = 0 WHERE epoch = $1", {epoch});
  });
}

Status BatchStore::renew(int64_t epoch, const std::map<int64_t, int64_t>& served_s) {
  return thread_.write_and_wait([&, epoch](Database& db) -> Status {
    SKEIN_TRY(check_epoch(db, epoch));
    for (const auto& [batch, seconds] : served_s) {
      SKEIN_TRY(
          db.exec(fmt::format("UPDATE batches SET served_s = served_s + $1 WHERE seq = $2 AND $3 = "
                              "(SELECT min(epoch) FROM nodes WHERE {})",
                              db.dialect().lives),
                  {seconds, batch, epoch}));
    }
    return {};
  });
}

Result<std::vector<OutputLine>> BatchStore::output_lines(int64_t batch, int64_t after,
                                                         int64_t limit) {
  return thread_.read_and_wait<std::vector<OutputLine>>([=](Database& db) {
    return db.list<OutputLine>(
        "SELECT line, custom_id, status_code, request_id, body, headers FROM batch_lines WHERE "
        "batch = $1 AND line > $2 ORDER BY line LIMIT $3",
        {batch, after, limit}, [](const Cursor& row) {
          return OutputLine{
              row.integer(0),
              row.text(1),
              {static_cast<int32_t>(row.integer(2)), row.text(3), row.text(4), row.text(5)}};
        });
  });
}

Status BatchStore::drop_lines(int64_t epoch, int64_t batch, int64_t limit) {
  return thread_.write_and_wait([=](Database& db) -> Status {
    SKEIN_TRY(check_epoch(db, epoch));
    SKEIN_ASSIGN(const int64_t dropped, db.run(kDeleteLines, {batch, limit}));
    if (dropped == limit) return {};
    return db.exec("UPDATE batches SET open = 0 WHERE seq = $1", {batch});
  });
}

}  // namespace skein
