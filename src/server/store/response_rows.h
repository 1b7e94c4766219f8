// The table of kept responses: what finds, adds and removes its rows. ResponseStore
// (response_store.h) says when.
//
// Thread-safety: the store's thread.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "server/store/response_store.h"

namespace skein {

// Rows that one job removes at most, so that nobody waits long for the store.
inline constexpr int64_t kRowsOfAJob = 256;

using FreedBytes = std::map<std::string, uint64_t>;  // by owner

// The rows that a job removes. Where a conversation has more rows than are left to it, the next row
// to go is marked (hidden = 2): nothing finds or continues it, and the sweep goes on there.
struct ResponseRemoval {
  FreedBytes freed;
  int64_t left = kRowsOfAJob;
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

inline constexpr const char* kResponseColumns =
    "seq, previous, hidden, owner, turns, bytes, chain_bytes, conversation_bytes";

struct ResponseAdded {
  bool is_in = false;  // else there is more to remove first
  ResponseRemoval removal;
};

ResponseRow response_row_of(const Cursor& row);
Result<std::optional<ResponseRow>> response_row_at(Database& db, int64_t seq);
// One that can be asked for.
Result<ResponseRow> find_response(Database& db, const std::string& id, const Scope& scope,
                                  int64_t oldest_s);
// The response is not found any more. It goes, with the hidden ones that nothing needs then; or it
// is hidden where others continue it, or where one is about to (`needed`; 0: none is).
Status drop_response(Database& db, ResponseRow row, int64_t needed, ResponseRemoval& removal);
// Makes room, a piece of it at a time, and adds the response where there is enough.
Result<ResponseAdded> make_room_and_add(Database& db, const NewResponse& response,
                                        const ResponseLimits& limits, int64_t served_s);
Result<std::vector<ConversationTurn>> read_conversation(Database& db, const std::string& id,
                                                        const Scope& scope,
                                                        const ResponseLimits& limits,
                                                        int64_t oldest_s);
// Each of these by itself, where it is found.
Result<std::vector<ConversationTurn>> read_turns(Database& db, const std::vector<std::string>& ids,
                                                 const Scope& scope, const ResponseLimits& limits,
                                                 int64_t oldest_s);

}  // namespace skein
