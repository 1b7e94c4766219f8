#include "server/store/backup.h"

#include <cerrno>
#include <cstring>
#include <fcntl.h>
#include <filesystem>
#include <sys/stat.h>
#include <unistd.h>
#include <vector>

#include "server/store/batch_store.h"
#include "server/store/database.h"
#include "server/store/sqlite/sqlite_database.h"
#include "server/store/store.h"

namespace skein {
namespace {

namespace fs = std::filesystem;

constexpr int kBusyTimeoutMs = 5'000;
constexpr size_t kPieceBytes = size_t{1} << 20;
// How often a batch may end, and its input be deleted, between the copy of the database and the
// input's own.
constexpr int kMaxTries = 20;

Status copy_error(const std::string& path) {
  return unavailable("{}: {}", path, std::strerror(errno));
}

Status sync_path(const std::string& path) {
  const OwnedFd fd(::open(path.c_str(), O_RDONLY | O_CLOEXEC));
  if (fd.get() < 0 || ::fsync(fd.get()) != 0) return copy_error(path);
  return {};
}

// kNotFound: it was deleted meanwhile.
Result<uint64_t> copy_content(const std::string& from, const std::string& to) {
  const OwnedFd source(::open(from.c_str(), O_RDONLY | O_CLOEXEC | O_NOFOLLOW));
  if (source.get() < 0 && errno == ENOENT) return not_found("{} is gone", from);
  if (source.get() < 0) return copy_error(from);
  const OwnedFd target(::open(to.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600));
  if (target.get() < 0) return copy_error(to);
  for (uint64_t bytes = 0;;) {
    SKEIN_ASSIGN(const std::string piece, read_part(source, bytes, kPieceBytes));
    for (size_t done = 0; done < piece.size();) {
      const ssize_t count = ::write(target.get(), piece.data() + done, piece.size() - done);
      if (count < 0 && errno != EINTR) return copy_error(to);
      if (count > 0) done += static_cast<size_t>(count);
    }
    bytes += piece.size();
    if (!piece.empty()) continue;
    if (::fsync(target.get()) != 0) return copy_error(to);
    return bytes;
  }
}

// A file that was deleted since the copy of the database was made is deleted in the copy as well.
// kNotFound: it is the input of a batch that had not ended by then, so that the copy is too old.
Status forget_file(Database& copy, const std::string& id) {
  SKEIN_ASSIGN(const bool in_use, is_input_of_live_batch(copy, id));
  if (in_use) return not_found("{}, the input of a batch, was deleted meanwhile", id);
  return copy.exec("DELETE FROM files WHERE id = $1", {id});
}

// The database, then the files that it names. kNotFound: as forget_file().
Status copy_once(const std::string& state_dir, const std::string& to) {
  const std::string copy = to + "/skein.db";
  {
    SKEIN_ASSIGN(const auto db, SqliteDatabase::open(state_dir + "/skein.db", kBusyTimeoutMs));
    if (const Status known = check_version(*db); !known.ok()) {
      return Status(known.code(), fmt::format("state folder {}: {}", state_dir, known.message()));
    }
    SKEIN_TRY(db->back_up_to(copy));
  }
  SKEIN_ASSIGN(const auto db, SqliteDatabase::open(copy, kBusyTimeoutMs));
  SKEIN_TRY(db->check_integrity());
  SKEIN_ASSIGN(const std::vector<std::string> ids,
               db->list<std::string>("SELECT id FROM files", {},
                                     [](const Cursor& row) { return row.text(0); }));
  for (const std::string& id : ids) {
    const std::string target = fmt::format("{}/files/{}", to, id);
    if (fs::exists(target)) continue;  // contents never change
    Status copied = copy_content(fmt::format("{}/files/{}", state_dir, id), target).status();
    if (copied.code() == Code::kNotFound) copied = forget_file(*db, id);
    SKEIN_TRY(copied);
  }
  return {};
}

Status copy_all(const std::string& state_dir, const std::string& to) {
  if (::mkdir(to.c_str(), 0700) != 0 || ::mkdir((to + "/files").c_str(), 0700) != 0) {
    return copy_error(to);
  }
  Status status = not_found("not tried");
  for (int i = 0; i < kMaxTries && status.code() == Code::kNotFound; ++i) {
    status = copy_once(state_dir, to);
  }
  SKEIN_TRY(status);
  for (const char* part : {"/skein.db", "/files", ""}) SKEIN_TRY(sync_path(to + part));
  return {};
}

}  // namespace

Result<BackupSummary> back_up(const std::string& state_dir, const std::string& to) {
  if (!Store::exists(state_dir))
    return not_found("state folder {}: there is no state in it", state_dir);
  if (fs::exists(to)) return already_exists("{} is there already; choose a new name", to);
  const std::string partial = to + ".partial";
  std::error_code error;
  fs::remove_all(partial, error);
  Status status = copy_all(state_dir, partial);
  if (status.ok() && ::rename(partial.c_str(), to.c_str()) != 0) status = copy_error(to);
  if (!status.ok()) {
    fs::remove_all(partial, error);
    return status;
  }
  const fs::path parent = fs::absolute(to).parent_path();
  SKEIN_TRY(sync_path(parent.string()));
  BackupSummary summary;
  for (const auto& entry : fs::recursive_directory_iterator(to, error)) {
    if (!entry.is_regular_file()) continue;
    summary.bytes += entry.file_size();
    if (entry.path().parent_path().filename() == "files") ++summary.files;
  }
  return summary;
}

}  // namespace skein
