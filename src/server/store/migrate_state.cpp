#include "server/store/migrate_state.h"

#include <algorithm>
#include <array>
#include <span>
#include <string_view>
#include <utility>
#include <vector>

#include "server/store/file_folder.h"
#include "server/store/file_parts.h"
#include "server/store/sqlite/sqlite_database.h"
#include "server/store/store.h"

namespace skein {
namespace {

// A table and its columns, each behind the kind of its values: i, t (text) or b (bytes). Who runs
// what is left out: nobody does.
struct TableColumns {
  const char* name;
  const char* columns;
};
constexpr std::array kTables = {
    TableColumns{"keys",
                 "i.seq t.id t.name i.tier t.models i.requests_per_minute i.tokens_per_minute "
                 "i.admin b.salt b.digest i.created_at i.rotated_at i.revoked_at"},
    TableColumns{"usage", "t.owner i.requests i.prompt_tokens i.cached_tokens i.output_tokens"},
    TableColumns{"files", "i.seq t.id t.owner t.purpose t.name i.bytes i.created_at"},
    TableColumns{"batches",
                 "i.seq t.id t.owner t.endpoint t.input_file t.metadata t.status t.outcome i.open "
                 "t.output_file t.error_file i.total i.completed i.failed i.expires_at "
                 "i.validating_at i.in_progress_at i.finalizing_at i.completed_at i.failed_at "
                 "i.expired_at i.cancelling_at i.cancelled_at i.served_s"},
    TableColumns{
        "batch_lines",
        "i.batch i.line t.custom_id i.first_byte i.bytes i.status_code t.request_id t.body "
        "i.deaths i.alone_deaths t.model t.headers"},
    TableColumns{"batch_counts", "i.batch i.epoch i.completed i.failed"},
    TableColumns{"batch_errors", "i.batch i.ordinal t.code t.message i.line"},
    TableColumns{"responses",
                 "i.seq t.id t.owner i.previous i.hidden i.served_s i.turns i.bytes i.chain_bytes "
                 "i.conversation_bytes t.input t.output t.head t.tail"},
    TableColumns{"response_use", "t.owner i.kept i.bytes"},
};

struct Column {
  char kind;
  std::string name;
};

std::vector<Column> columns_of(std::string_view text) {
  std::vector<Column> columns;
  while (!text.empty()) {
    const std::string_view word = text.substr(0, text.find(' '));
    columns.push_back({word.front(), std::string(word.substr(2))});
    text.remove_prefix(std::min(text.size(), word.size() + 1));
  }
  return columns;
}

std::string joined(const std::vector<Column>& columns, std::string_view format) {
  std::string all;
  for (size_t i = 0; i < columns.size(); ++i) {
    if (!all.empty()) all += ", ";
    all += fmt::format(fmt::runtime(format), columns[i].name, i + 1);
  }
  return all;
}

Status copy_row(const Cursor& row, const std::vector<Column>& columns, const std::string& insert,
                Database& to) {
  std::vector<std::string> texts(columns.size());
  std::vector<SqlValue> values(columns.size());
  for (size_t i = 0; i < columns.size(); ++i) {
    const auto column = static_cast<int>(i);
    if (row.integer(column + static_cast<int>(columns.size())) != 0) continue;  // NULL
    if (columns[i].kind == 'i') {
      values[i] = row.integer(column);
      continue;
    }
    texts[i] = row.text(column);
    if (columns[i].kind == 't') {
      values[i] = std::string_view(texts[i]);
    } else {
      values[i] = std::as_bytes(std::span(texts[i]));
    }
  }
  SKEIN_ASSIGN(const auto cursor, to.query(insert, std::span<const SqlValue>(values)));
  return cursor->next().status();
}

// Rows keep their numbers, so that what names them does so still.
Result<uint64_t> copy_table(Database& from, Database& to, const TableColumns& table) {
  const std::vector<Column> columns = columns_of(table.columns);
  // Whether a value is NULL follows it, since a cursor does not say.
  SKEIN_ASSIGN(const auto rows, from.query(fmt::format(
                                    "SELECT {}, {} FROM {} ORDER BY rowid", joined(columns, "{0}"),
                                    joined(columns, "{0} IS NULL"), table.name)));
  const bool is_numbered = columns.front().name == "seq";
  const std::string insert =
      fmt::format("INSERT INTO {} ({}){} VALUES ({})", table.name, joined(columns, "{0}"),
                  is_numbered ? " OVERRIDING SYSTEM VALUE" : "", joined(columns, "${1}"));
  for (uint64_t count = 0;; ++count) {
    SKEIN_ASSIGN(const bool row, rows->next());
    if (!row) return count;
    SKEIN_TRY(copy_row(*rows, columns, insert, to));
  }
}

Status copy_content(FileFolder& folder, const std::string& id, Database& to, MigratedState& moved) {
  SKEIN_ASSIGN(const auto content, folder.open(id));
  ++moved.files;
  for (int64_t part = 0;; ++part) {
    SKEIN_ASSIGN(const std::string bytes,
                 content->read(static_cast<uint64_t>(part) * kFilePartBytes, kFilePartBytes));
    if (bytes.empty()) return {};
    SKEIN_TRY(to.exec("INSERT INTO file_parts (file, part, epoch, bytes) VALUES ($1, $2, 0, $3)",
                      {id, part, std::as_bytes(std::span(bytes))}));
    moved.bytes += bytes.size();
  }
}

Status check_empty(Database& to) {
  for (const char* table : {"keys", "usage", "files", "batches", "responses", "nodes"}) {
    SKEIN_ASSIGN(const int64_t rows, to.integer(fmt::format("SELECT count(*) FROM {}", table)));
    if (rows != 0) {
      return already_exists("store: it has {} rows of {}, and must have nothing in it", rows,
                            table);
    }
  }
  return {};
}

// What is derived from the salt key (tenants' salts) stays as it was, too.
Status copy_meta(Database& from, Database& to) {
  SKEIN_ASSIGN(const std::vector<std::string> salt,
               from.list<std::string>("SELECT value FROM meta WHERE name = 'salt_key'", {},
                                      [](const Cursor& row) { return row.text(0); }));
  for (const std::string& value : salt) {
    SKEIN_TRY(
        to.exec("INSERT INTO meta VALUES ('salt_key', $1) ON CONFLICT (name) DO UPDATE SET "
                "value = excluded.value",
                {std::as_bytes(std::span(value))}));
  }
  SKEIN_ASSIGN(const int64_t served_s, from.integer("SELECT seconds FROM served_time"));
  return to.exec("UPDATE served_time SET seconds = $1", {served_s});
}

// New rows come behind those that were copied.
Status go_on_behind(Database& to, const char* table) {
  return to
      .run(fmt::format("SELECT setval(pg_get_serial_sequence('{0}', 'seq'), 1 + coalesce((SELECT "
                       "max(seq) FROM {0}), 0), false)",
                       table))
      .status();
}

// Inside a transaction.
Result<MigratedState> copy_state(Database& from, FileFolder& folder, Database& to) {
  MigratedState moved;
  SKEIN_TRY(to.be_alone());
  SKEIN_TRY(check_empty(to));
  SKEIN_TRY(copy_meta(from, to));
  SKEIN_ASSIGN(const std::vector<std::string> ids,
               from.list<std::string>("SELECT id FROM files", {},
                                      [](const Cursor& row) { return row.text(0); }));
  for (const std::string& id : ids) SKEIN_TRY(copy_content(folder, id, to, moved));
  for (const TableColumns& table : kTables) {
    SKEIN_ASSIGN(const uint64_t rows, copy_table(from, to, table));
    moved.rows += rows;
  }
  for (const char* table : {"keys", "files", "batches", "responses"}) {
    SKEIN_TRY(go_on_behind(to, table));
  }
  // An old server's number must not come again.
  SKEIN_TRY(to.run("SELECT setval(pg_get_serial_sequence('nodes', 'epoch'), 1 + coalesce((SELECT "
                   "max(epoch) FROM batch_counts), 0), false)")
                .status());
  return moved;
}

}  // namespace

Result<MigratedState> migrate_state(const std::string& state_dir, const std::string& url) {
  if (!Store::exists(state_dir)) {
    return not_found("state folder {}: there is no state in it", state_dir);
  }
  // Brings the folder up to today's tables, and holds it while it is read.
  SKEIN_ASSIGN(const auto source, Store::open({.state_dir = state_dir}));
  SKEIN_ASSIGN(const auto target, Store::open({.url = url, .is_server = false}));
  SKEIN_ASSIGN(const auto from, SqliteDatabase::open(state_dir + "/skein.db", 5'000));
  FileFolder folder(state_dir + "/files");
  return target->thread().write_and_wait<MigratedState>(
      [&](Database& to) { return copy_state(*from, folder, to); });
}

}  // namespace skein
