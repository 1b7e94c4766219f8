// File contents in the database, where several servers share it: rows of 1 MiB each, which are
// readable everywhere as soon as the file's row is there. The row's own triggers hold it to its
// parts: it comes with all of them, and they go with it.
#pragma once

#include <functional>
#include <memory>
#include <string>

#include "server/store/file_contents.h"
#include "server/store/store_thread.h"

namespace skein {

inline constexpr size_t kFilePartBytes = size_t{1} << 20;

class FileParts final : public FileContents {
 public:
  // Both outlive it, and what it makes. `epoch`: of this server, now.
  FileParts(StoreThread& thread, std::function<int64_t()> epoch)
      : thread_(thread), epoch_(std::move(epoch)) {}

  Result<std::unique_ptr<FileWriter>> create(uint64_t max_bytes,
                                             std::unique_ptr<FileClaim> claim) override;
  Result<std::unique_ptr<FileReader>> open(const std::string& id) override;
  void remove(const std::string&) override {}  // the row's trigger does

 private:
  StoreThread& thread_;
  const std::function<int64_t()> epoch_;
};

// On the store's thread: removes some of the parts that servers left that live no more, and that
// are no file's.
Status sweep_parts(Database& db);

}  // namespace skein
