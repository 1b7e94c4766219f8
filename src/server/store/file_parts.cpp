#include "server/store/file_parts.h"

#include <algorithm>
#include <span>
#include <utility>
#include <vector>

namespace skein {
namespace {

// An upload may outlive its server's epoch, never an hour.
constexpr const char* kSweepParts = R"sql(
DELETE FROM file_parts
WHERE (file, part) IN (
  SELECT p.file, p.part FROM file_parts p
  WHERE p.written_at < clock_timestamp() - interval '1 hour'
    AND NOT EXISTS (SELECT 1 FROM files WHERE files.id = p.file)
    AND NOT EXISTS (SELECT 1 FROM nodes WHERE nodes.epoch = p.epoch)
  LIMIT 64)
)sql";

class PartsWriter final : public FileWriter {
 public:
  PartsWriter(StoreThread& thread, std::function<int64_t()> epoch, uint64_t max_bytes,
              std::unique_ptr<FileClaim> claim)
      : FileWriter(make_file_id(), max_bytes, kFilePartBytes, std::move(claim)),
        thread_(thread),
        epoch_(std::move(epoch)) {}
  ~PartsWriter() override { discard(); }

 private:
  // Parts are full but for the last, so that a place tells its part.
  Status write(std::string_view bytes) override {
    tail_ += bytes;
    std::string_view rest = tail_;
    while (rest.size() >= kFilePartBytes) {
      SKEIN_TRY(insert(rest.substr(0, kFilePartBytes)));
      rest.remove_prefix(kFilePartBytes);
    }
    tail_ = std::string(rest);
    return {};
  }
  Status make_durable() override {
    if (tail_.empty()) return {};
    SKEIN_TRY(insert(tail_));
    tail_.clear();
    return {};
  }
  Status insert(std::string_view bytes) {
    return await_status([&](DoneStatus done) {
      thread_.write(
          [this, bytes, epoch = epoch_()](Database& db) {
            return db.exec(
                "INSERT INTO file_parts (file, part, epoch, bytes) VALUES ($1, $2, $3, "
                "$4) ON CONFLICT (file, part) DO UPDATE SET bytes = excluded.bytes",
                {id(), part_, epoch, std::as_bytes(std::span(bytes))});
          },
          [this, done = std::move(done)](Status status) {
            if (status.ok()) ++part_;
            done(std::move(status));
          });
      thread_.hurry();
    });
  }
  // What does not go now is swept later.
  void remove() override {
    if (part_ == 0) return;
    thread_.write(
        [file = id()](Database& db) {
          return db.exec(
              "DELETE FROM file_parts WHERE file = $1 AND NOT EXISTS (SELECT 1 FROM files "
              "WHERE id = $1)",
              {file});
        },
        [](const Status&) {});
  }

  StoreThread& thread_;
  const std::function<int64_t()> epoch_;
  std::string tail_;
  int64_t part_ = 0;
};

class PartsReader final : public FileReader {
 public:
  PartsReader(StoreThread& thread, std::string id) : thread_(thread), id_(std::move(id)) {}

  Result<std::string> read(uint64_t offset, size_t bytes) const override {
    std::string text;
    while (text.size() < bytes) {
      const uint64_t from = offset + text.size();
      const uint64_t inside = from % kFilePartBytes;
      const uint64_t wanted = std::min<uint64_t>(bytes - text.size(), kFilePartBytes - inside);
      SKEIN_ASSIGN(const std::string piece, read_piece(from / kFilePartBytes, inside, wanted));
      text += piece;
      if (piece.size() < wanted) break;
    }
    return text;
  }

 private:
  // Empty where there is no such part: beyond the end.
  Result<std::string> read_piece(uint64_t part, uint64_t inside, uint64_t wanted) const {
    return thread_.read_and_wait<std::string>([=, this](Database& db) -> Result<std::string> {
      SKEIN_ASSIGN(
          const std::vector<std::string> pieces,
          db.list<std::string>("SELECT substr(bytes, CAST($3 AS INTEGER), CAST($4 AS "
                               "INTEGER)) FROM file_parts WHERE file = $1 AND part = $2",
                               {id_, static_cast<int64_t>(part), static_cast<int64_t>(inside + 1),
                                static_cast<int64_t>(wanted)},
                               [](const Cursor& row) { return row.text(0); }));
      return pieces.empty() ? std::string() : pieces.front();
    });
  }

  StoreThread& thread_;
  const std::string id_;
};

}  // namespace

Result<std::unique_ptr<FileWriter>> FileParts::create(uint64_t max_bytes,
                                                      std::unique_ptr<FileClaim> claim) {
  return std::unique_ptr<FileWriter>(
      std::make_unique<PartsWriter>(thread_, epoch_, max_bytes, std::move(claim)));
}

Result<std::unique_ptr<FileReader>> FileParts::open(const std::string& id) {
  SKEIN_CHECK(is_file_id(id), "'{}' is no file id", id);
  return std::unique_ptr<FileReader>(std::make_unique<PartsReader>(thread_, id));
}

Status sweep_parts(Database& db) {
  return db.run(kSweepParts).status();
}

}  // namespace skein
