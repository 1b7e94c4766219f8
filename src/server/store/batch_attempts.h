// Which lines were running when a server died: a line that kills the server must not do so for
// ever.
//
// A line is marked before it runs, and the mark goes with its result, with its return, and with an
// orderly stop. So the marks that a server finds when it starts are those of a process that died.
// These lines run alone from then on, one at a time: that tells the one that kills from those that
// stood beside it. A line that was alone at two deaths, or was there at three, fails.
//
// A machine that was started anew since (another boot id) says nothing about its lines.
//
// All of it runs on the store's thread (or before it), inside a transaction.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "base/status.h"
#include "server/store/batch_rows.h"
#include "server/store/sqlite.h"

namespace skein {

inline constexpr int64_t kMaxDeathsAlone = 2;
inline constexpr int64_t kMaxDeaths = 3;

struct LineName {
  int64_t seq = 0;  // of its batch
  int64_t line = 0;
};

Status mark_running(Database& db, const std::vector<LineName>& lines, bool alone);
Status unmark_running(Database& db, const std::string& batch, int64_t line);
Status unmark_all(Database& db);

// When a server starts. Whether marks are of a process that died rather than of a machine that was
// started anew; remembers the boot.
Result<bool> is_same_boot(Database& db, const std::string& boot_id);
// Counts a death for every line that is marked (unless `died` is false), fails those that have had
// enough, and takes the marks away.
Status note_deaths(Database& db, bool died);

struct SuspectLine {
  int64_t seq = 0;
  InputLine line;
};
// Lines without a result that were there at a death, of batches in progress; oldest first.
Result<std::vector<SuspectLine>> suspect_lines(Database& db, int64_t limit);

}  // namespace skein
