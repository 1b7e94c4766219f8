#include "server/store/batch_attempts.h"

#include <utility>

#include "base/log.h"

namespace skein {
namespace {

LineResult crash_result(int64_t deaths, int64_t alone) {
  return {
      500, "",
      fmt::format(R"({{"error": {{"message": "The server died {} times while this request ran, {} )"
                  R"(of them while no other line of a batch did; it is not tried again.", )"
                  R"("type": "server_error", "param": null, "code": "request_crashed_server"}}}})",
                  deaths, alone)};
}

struct Crashed {
  std::string batch;
  int64_t line;
  int64_t deaths;
  int64_t alone;
};

Result<std::vector<Crashed>> crashed_lines(Database& db) {
  SKEIN_ASSIGN(
      Cursor rows,
      db.query("SELECT b.id, l.line, l.deaths, l.alone_deaths FROM batch_lines l JOIN batches b "
               "ON b.seq = l.batch WHERE l.running != 0 AND l.status_code IS NULL AND b.status "
               "= 'in_progress' AND (l.deaths >= ?1 OR l.alone_deaths >= ?2)",
               {kMaxDeaths, kMaxDeathsAlone}));
  std::vector<Crashed> lines;
  for (;;) {
    SKEIN_ASSIGN(const bool row, rows.next());
    if (!row) return lines;
    lines.push_back({rows.text(0), rows.integer(1), rows.integer(2), rows.integer(3)});
  }
}

}  // namespace

Status mark_running(Database& db, const std::vector<LineName>& lines, bool alone) {
  for (const LineName& one : lines) {
    SKEIN_TRY(db.run("UPDATE batch_lines SET running = ?1 WHERE batch = ?2 AND line = ?3",
                     {int64_t{alone ? 2 : 1}, one.seq, one.line})
                  .status());
  }
  return {};
}

Status unmark_running(Database& db, const std::string& batch, int64_t line) {
  return db
      .run(
          "UPDATE batch_lines SET running = 0 WHERE batch = (SELECT seq FROM batches WHERE id = "
          "?1) "
          "AND line = ?2",
          {batch, line})
      .status();
}

Status unmark_all(Database& db) {
  return db.run("UPDATE batch_lines SET running = 0 WHERE running != 0").status();
}

Result<bool> is_same_boot(Database& db, const std::string& boot_id) {
  std::string known;
  {
    SKEIN_ASSIGN(Cursor rows, db.query("SELECT value FROM meta WHERE name = 'boot_id'"));
    SKEIN_ASSIGN(const bool row, rows.next());
    if (row) known = rows.text(0);
  }
  if (known == boot_id) return true;
  SKEIN_TRY(db.run("INSERT OR REPLACE INTO meta VALUES ('boot_id', ?1)",
                   {std::as_bytes(std::span(boot_id))})
                .status());
  return known.empty();
}

Status note_deaths(Database& db, bool died) {
  if (!died) return unmark_all(db);
  SKEIN_TRY(db.run("UPDATE batch_lines SET deaths = deaths + 1, alone_deaths = alone_deaths + "
                   "(running = 2) WHERE running != 0 AND status_code IS NULL")
                .status());
  SKEIN_ASSIGN(const std::vector<Crashed> crashed, crashed_lines(db));
  for (const Crashed& one : crashed) {
    log_error("batch {}, line {}: the server died {} times while it ran; it fails", one.batch,
              one.line, one.deaths);
    SKEIN_TRY(finish_line(db, one.batch, one.line, crash_result(one.deaths, one.alone)));
  }
  return unmark_all(db);
}

Result<std::vector<SuspectLine>> suspect_lines(Database& db, int64_t limit) {
  SKEIN_ASSIGN(
      Cursor rows,
      db.query("SELECT l.batch, l.line, l.custom_id, l.offset, l.bytes FROM batch_lines l JOIN "
               "batches b ON b.seq = l.batch WHERE l.deaths != 0 AND l.status_code IS NULL AND "
               "b.status = 'in_progress' ORDER BY l.batch, l.line LIMIT ?1",
               {limit}));
  std::vector<SuspectLine> lines;
  for (;;) {
    SKEIN_ASSIGN(const bool row, rows.next());
    if (!row) return lines;
    lines.push_back({rows.integer(0),
                     {rows.integer(1),
                      rows.text(2),
                      static_cast<uint64_t>(rows.integer(3)),
                      static_cast<uint64_t>(rows.integer(4)),
                      {}}});
  }
}

}  // namespace skein
