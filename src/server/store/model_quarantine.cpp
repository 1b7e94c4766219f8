#include "server/store/model_quarantine.h"

#include <filesystem>
#include <sys/stat.h>
#include <utility>

#include "base/folder.h"
#include "base/hash.h"
#include "base/log.h"
#include "base/patience.h"

namespace skein {
namespace {

// Names, sizes and times of change of a file, or of the files of a folder.
std::string fingerprint_of(const std::string& path) {
  std::vector<std::filesystem::path> files;
  if (auto entries = entries_of(path); entries.ok()) files = std::move(*entries);
  files.insert(files.begin(), path);
  std::string facts;
  for (const std::filesystem::path& file : files) {
    struct stat info = {};
    if (::stat(file.c_str(), &info) != 0 || S_ISDIR(info.st_mode)) continue;
    facts += fmt::format("{} {} {}.{:09}\n", file.native(), info.st_size, info.st_mtim.tv_sec,
                         info.st_mtim.tv_nsec);
  }
  const Hash128 hash = keyed_hash({}, std::as_bytes(std::span(facts.data(), facts.size())));
  return fmt::format("{:016x}{:016x}", hash.high, hash.low);
}

Status note_load(Database& db, const std::string& path, const std::string& fingerprint) {
  SKEIN_ASSIGN(const int64_t quarantined,
               db.integer("SELECT count(*) FROM model_loads WHERE path = $1 AND fingerprint = $2 "
                          "AND quarantined = 1",
                          {path, fingerprint}));
  if (quarantined != 0) {
    return data_loss(
        "the server died while it loaded this model, so it is quarantined; replace its files, "
        "load it with \"force\": true at /admin/models/load, or name it with --model");
  }
  return db.exec(
      "INSERT INTO model_loads VALUES ($1, $2, 0) ON CONFLICT (path) DO UPDATE SET fingerprint "
      "= excluded.fingerprint, quarantined = 0",
      {path, fingerprint});
}

Status remove_note(Database& db, const std::string& path) {
  return db.exec("DELETE FROM model_loads WHERE path = $1 AND quarantined = 0", {path});
}

std::string prefix_of(const std::string& node) {
  return node.empty() ? "" : node + ":";
}

#define SKEIN_NOTES_OF "quarantined = 0 AND substr(path, 1, length($1)) = $1"

}  // namespace

ModelQuarantine::ModelQuarantine(StoreThread& thread, const std::string& node)
    : thread_(thread), prefix_(prefix_of(node)) {}

Status ModelQuarantine::begin_load(const std::string& file) {
  const std::string path = prefix_ + file;
  Status status = await_status([&](DoneStatus done) {
    thread_.write(job_of(note_load, path, fingerprint_of(file)),
                  [this, path, done = std::move(done)](const Status& noted) {
                    {
                      const std::lock_guard lock(mutex_);
                      std::erase(left_, path);  // the note there is now is of this load
                    }
                    done(noted);
                  });
  });
  if (status.ok() || status.code() == Code::kDataLoss) return status;
  log_warning("the load of a model goes on without a note: {}", status.message());
  return {};
}

void ModelQuarantine::end_load(const std::string& file) {
  const std::string path = prefix_ + file;
  thread_.write(job_of(remove_note, path), [this, path](const Status& removed) {
    if (removed.ok()) return;
    const PatientScope patient;
    const std::lock_guard lock(mutex_);
    left_.push_back(path);
  });
}

void ModelQuarantine::remove_left_notes(Database& db) {
  const std::lock_guard lock(mutex_);
  std::erase_if(left_, [&db](const std::string& path) { return remove_note(db, path).ok(); });
}

void ModelQuarantine::end_all_loads() {
  (void)thread_.write_and_wait([this](Database& db) {
    return db.exec("DELETE FROM model_loads WHERE " SKEIN_NOTES_OF, {prefix_});
  });
}

void ModelQuarantine::forgive(const std::string& file) {
  const std::string path = prefix_ + file;
  (void)thread_.write_and_wait(
      [&path](Database& db) { return db.exec("DELETE FROM model_loads WHERE path = $1", {path}); });
}

Status quarantine_loads(Database& db, const std::string& node, bool died) {
  const std::string prefix = prefix_of(node);
  if (!died) return db.exec("DELETE FROM model_loads WHERE " SKEIN_NOTES_OF, {prefix});
  SKEIN_ASSIGN(const int64_t changed,
               db.run("UPDATE model_loads SET quarantined = 1 WHERE " SKEIN_NOTES_OF, {prefix}));
  if (changed > 0) log_error("the server died while it loaded a model, which is quarantined now");
  return {};
}

}  // namespace skein
