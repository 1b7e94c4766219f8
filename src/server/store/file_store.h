// Uploaded and produced files: a row each, and a content (file_contents.h).
//
//   SKEIN_ASSIGN(auto writer, files.create(owner));  // on a worker; append as bytes arrive
//   SKEIN_TRY(writer->append(bytes));
//   files.commit(std::move(writer), {owner, "batch", "input.jsonl"}, done);
//
// A writer that is dropped before its commit leaves nothing. Thread-safety: any thread; answers
// come on the store's thread. create() and commit() wait for contents on the caller's thread, so
// call them on a worker, never on an I/O thread.
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <string>

#include "server/store/file_budget.h"
#include "server/store/file_contents.h"
#include "server/store/records.h"
#include "server/store/store_thread.h"

namespace skein {

inline constexpr uint64_t kMaxFileBytes = uint64_t{512} << 20;

struct FileInfo {
  std::string owner;
  std::string purpose;
  std::string name;
};

struct OpenFile {
  FileRecord record;
  std::unique_ptr<FileReader> content;
};

class FileStore {
 public:
  FileStore(StoreThread& thread, FileContents& contents, FileBudget& budget,
            std::function<int64_t()> unix_time_s)
      : thread_(thread), contents_(contents), budget_(budget), now_s_(std::move(unix_time_s)) {}

  // Begins a file that the owner uploads; the errors are those of FileBudget::claim().
  Result<std::unique_ptr<FileWriter>> create(const std::string& owner,
                                             uint64_t max_bytes = kMaxFileBytes) const;
  // Begins a file that a batch of the owner gives: no limit refuses it.
  Result<std::unique_ptr<FileWriter>> create_output(const std::string& owner) const;
  // Makes the content durable, then the row. On failure nothing is left of either.
  void commit(std::unique_ptr<FileWriter> writer, FileInfo info, Done<FileRecord> done);

  void get(std::string id, Scope scope, Done<FileRecord> done);
  void list(Scope scope, ListOptions options, Done<Page<FileRecord>> done);
  void open(std::string id, Scope scope, Done<OpenFile> done);
  // kInvalidArgument while a batch that has not ended reads it.
  void remove(std::string id, Scope scope, Done<FileRecord> done);

 private:
  StoreThread& thread_;
  FileContents& contents_;
  FileBudget& budget_;
  std::function<int64_t()> now_s_;
};

// On the store's thread.
Result<FileRecord> find_file(Database& db, const std::string& id, const Scope& scope);
Status insert_file(Database& db, const FileRecord& file);
// Counts every file that there is, by owner.
Status count_files(Database& db, std::map<std::string, FileUse>& uses);

}  // namespace skein
