#include "server/store/file_store.h"

#include <utility>

#include "server/store/batch_store.h"
#include "server/store/listing.h"

namespace skein {
namespace {

constexpr uint64_t kMaxOutputBytes = uint64_t{1} << 40;
constexpr const char* kFileColumns = "id, owner, purpose, name, bytes, created_at";

Result<FileRecord> file_of(const Cursor& row) {
  return FileRecord{
      row.text(0),   row.text(1), row.text(2), row.text(3), static_cast<uint64_t>(row.integer(4)),
      row.integer(5)};
}

Result<FileRecord> delete_file(Database& db, const std::string& id, const Scope& scope) {
  SKEIN_TRY(db.be_alone());
  SKEIN_ASSIGN(FileRecord file, find_file(db, id, scope));
  SKEIN_ASSIGN(const bool in_use, is_input_of_live_batch(db, id));
  if (in_use) {
    return invalid_argument("the file '{}' is the input of a batch that has not ended", id);
  }
  SKEIN_TRY(db.exec("DELETE FROM files WHERE id = $1", {id}));
  return file;
}

}  // namespace

Result<FileRecord> find_file(Database& db, const std::string& id, const Scope& scope) {
  SKEIN_ASSIGN(const std::vector<FileRecord> files,
               db.list<FileRecord>(fmt::format("SELECT {} FROM files WHERE {} AND id = $2",
                                               kFileColumns, owner_condition(scope)),
                                   {scope.owner, id}, file_of));
  if (files.empty()) return not_found("there is no file with the id '{}'", id);
  return files.front();
}

Status insert_file(Database& db, const FileRecord& file) {
  return db.exec(
      "INSERT INTO files (id, owner, purpose, name, bytes, created_at) "
      "VALUES ($1, $2, $3, $4, $5, $6)",
      {file.id, file.owner, file.purpose, file.name, static_cast<int64_t>(file.bytes),
       file.created_at_s});
}

Status count_files(Database& db, std::map<std::string, FileUse>& uses) {
  return db
      .list<bool>("SELECT owner, count(*), CAST(sum(bytes) AS BIGINT) FROM files GROUP BY owner",
                  {},
                  [&uses](const Cursor& row) {
                    FileUse& use = uses[row.text(0)];
                    use.files += static_cast<uint64_t>(row.integer(1));
                    use.bytes += static_cast<uint64_t>(row.integer(2));
                    return true;
                  })
      .status();
}

Result<std::unique_ptr<FileWriter>> FileStore::create(const std::string& owner,
                                                      uint64_t max_bytes) const {
  SKEIN_ASSIGN(std::unique_ptr<FileClaim> claim, budget_.claim(owner));
  return contents_.create(max_bytes, std::move(claim));
}

Result<std::unique_ptr<FileWriter>> FileStore::create_output(const std::string& owner) const {
  return contents_.create(kMaxOutputBytes, budget_.claim_output(owner));
}

void FileStore::commit(std::unique_ptr<FileWriter> writer, FileInfo info, Done<FileRecord> done) {
  if (Status status = writer->sync(); !status.ok()) {
    done(std::move(status));
    return;
  }
  const FileRecord file{writer->id(),         std::move(info.owner), std::move(info.purpose),
                        std::move(info.name), writer->bytes(),       now_s_()};
  std::shared_ptr<FileWriter> content = std::move(writer);
  thread_.write<FileRecord>(
      [file](Database& db) -> Result<FileRecord> {
        SKEIN_TRY(insert_file(db, file));
        return file;
      },
      [content, done = std::move(done)](Result<FileRecord> result) {
        if (result.ok()) {
          content->keep();
        } else {
          content->discard();
        }
        done(std::move(result));
      });
}

void FileStore::get(std::string id, Scope scope, Done<FileRecord> done) {
  thread_.read<FileRecord>(job_of(find_file, std::move(id), std::move(scope)), std::move(done));
}

void FileStore::list(Scope scope, ListOptions options, Done<Page<FileRecord>> done) {
  thread_.read<Page<FileRecord>>(
      [scope = std::move(scope), options = std::move(options)](Database& db) {
        return list_rows<FileRecord>(db, kFileColumns, "files", "($2 = '' OR purpose = $2)", scope,
                                     options, file_of);
      },
      std::move(done));
}

void FileStore::open(std::string id, Scope scope, Done<OpenFile> done) {
  thread_.read<OpenFile>(
      [this, id = std::move(id), scope = std::move(scope)](Database& db) -> Result<OpenFile> {
        SKEIN_ASSIGN(FileRecord file, find_file(db, id, scope));
        SKEIN_ASSIGN(auto content, contents_.open(file.id));
        return OpenFile{std::move(file), std::move(content)};
      },
      std::move(done));
}

void FileStore::remove(std::string id, Scope scope, Done<FileRecord> done) {
  thread_.write_freeing<FileRecord>(job_of(delete_file, std::move(id), std::move(scope)),
                                    [this, done = std::move(done)](Result<FileRecord> result) {
                                      if (result.ok()) {
                                        contents_.remove(result->id);
                                        budget_.remove(result->owner, {1, result->bytes});
                                      }
                                      done(std::move(result));
                                    });
}

}  // namespace skein
