#include "server/store/response_rows.h"

#include <algorithm>
#include <utility>

#include "server/store/listing.h"

namespace skein {
namespace {

Result<bool> is_continued(Database& db, int64_t seq) {
  SKEIN_ASSIGN(const int64_t any,
               db.integer("SELECT EXISTS (SELECT 1 FROM responses WHERE previous = $1)", {seq}));
  return any != 0;
}

// Changes what the owner is found to keep: responses that are not hidden, and bytes of all.
Status change_use(Database& db, const std::string& owner, int64_t kept, int64_t bytes) {
  return db.exec(
      "INSERT INTO response_use VALUES ($1, $2, $3) ON CONFLICT (owner) DO UPDATE SET kept = "
      "response_use.kept + excluded.kept, bytes = response_use.bytes + excluded.bytes",
      {owner, kept, bytes});
}

Status delete_row(Database& db, const ResponseRow& row, ResponseRemoval& removal) {
  SKEIN_TRY(db.exec("DELETE FROM responses WHERE seq = $1", {row.seq}));
  SKEIN_TRY(change_use(db, row.owner, row.hidden ? 0 : -1, -row.bytes));
  removal.freed[row.owner] += static_cast<uint64_t>(row.bytes);
  --removal.left;
  return {};
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
                      kResponseColumns),
          {response.owner, response.previous}, response_row_of));
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

// The response that gives way next: one that is marked, then the owner's oldest.
Result<std::vector<ResponseRow>> next_to_go(Database& db, const std::string& owner) {
  SKEIN_ASSIGN(std::vector<ResponseRow> marked,
               db.list<ResponseRow>(
                   fmt::format("SELECT {} FROM responses WHERE owner = $1 AND hidden = 2 LIMIT 1",
                               kResponseColumns),
                   {owner}, response_row_of));
  if (!marked.empty()) return marked;
  return db.list<ResponseRow>(fmt::format("SELECT {} FROM responses WHERE owner = $1 AND hidden = "
                                          "0 ORDER BY seq LIMIT 1",
                                          kResponseColumns),
                              {owner}, response_row_of);
}

}  // namespace

ResponseRow response_row_of(const Cursor& row) {
  return {row.integer(0), row.integer(1), row.integer(2) != 0, row.text(3),
          row.integer(4), row.integer(5), row.integer(6),      row.integer(7)};
}

Result<std::optional<ResponseRow>> response_row_at(Database& db, int64_t seq) {
  SKEIN_ASSIGN(
      const std::vector<ResponseRow> rows,
      db.list<ResponseRow>(fmt::format("SELECT {} FROM responses WHERE seq = $1", kResponseColumns),
                           {seq}, response_row_of));
  return rows.empty() ? std::nullopt : std::optional(rows.front());
}

Result<ResponseRow> find_response(Database& db, const std::string& id, const Scope& scope,
                                  int64_t oldest_s) {
  SKEIN_ASSIGN(const std::vector<ResponseRow> rows,
               db.list<ResponseRow>(fmt::format("SELECT {} FROM responses WHERE {} AND id = $2 AND "
                                                "hidden = 0 AND served_s > $3",
                                                kResponseColumns, owner_condition(scope)),
                                    {scope.owner, id, oldest_s}, response_row_of));
  if (rows.empty()) return not_found("there is no response with the id '{}'", id);
  return rows.front();
}

Status drop_response(Database& db, ResponseRow row, int64_t needed, ResponseRemoval& removal) {
  SKEIN_ASSIGN(const bool continued, is_continued(db, row.seq));
  if (continued || row.seq == needed) {
    if (row.hidden) return {};
    SKEIN_TRY(db.exec("UPDATE responses SET hidden = 1 WHERE seq = $1", {row.seq}));
    return change_use(db, row.owner, -1, 0);
  }
  for (;;) {
    SKEIN_TRY(delete_row(db, row, removal));
    if (row.previous == 0 || row.previous == needed) return {};
    SKEIN_ASSIGN(std::optional<ResponseRow> before, response_row_at(db, row.previous));
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

Result<ResponseAdded> make_room_and_add(Database& db, const NewResponse& response,
                                        const ResponseLimits& limits, int64_t served_s) {
  ResponseAdded outcome;
  SKEIN_TRY(db.be_alone());
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
    if (dropped == kRowsOfAJob || outcome.removal.left <= 0) return outcome;
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

Result<std::vector<ConversationTurn>> read_turns(Database& db, const std::vector<std::string>& ids,
                                                 const Scope& scope, const ResponseLimits& limits,
                                                 int64_t oldest_s) {
  std::vector<ConversationTurn> turns;
  uint64_t bytes = 0;
  for (const std::string& id : ids) {
    auto row = find_response(db, id, scope, oldest_s);
    if (row.status().code() == Code::kNotFound) continue;
    SKEIN_TRY(row.status());
    bytes += static_cast<uint64_t>(row->bytes);
    if (bytes > limits.conversation_bytes) {
      return out_of_range("The responses that it refers to have {} bytes, and {} is the most.",
                          bytes, limits.conversation_bytes);
    }
    SKEIN_ASSIGN(std::vector<ConversationTurn> turn,
                 db.list<ConversationTurn>(
                     "SELECT id, input, output FROM responses WHERE seq = $1", {row->seq},
                     [](const Cursor& parts) {
                       return ConversationTurn{parts.text(0), parts.text(1), parts.text(2)};
                     }));
    if (turn.empty()) return data_loss("store: the response {} is gone", row->seq);
    turns.push_back(std::move(turn.front()));
  }
  return turns;
}

}  // namespace skein
