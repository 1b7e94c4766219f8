// Batches as the API shows them: create, look up, list, cancel. Running them is server/batch's.
// Thread-safety: any thread; answers come on the store's thread.
#pragma once

#include <functional>
#include <string>

#include "server/store/batch_rows.h"
#include "server/store/records.h"
#include "server/store/store_thread.h"

namespace skein {

class BatchStore {
 public:
  BatchStore(StoreThread& thread, std::function<int64_t()> unix_time_s)
      : thread_(thread), now_s_(std::move(unix_time_s)) {}

  // The errors are those of batch_rows.h.
  void create(NewBatch batch, Done<BatchRecord> done);
  void get(std::string id, Scope scope, Done<BatchRecord> done);
  void list(Scope scope, ListOptions options, Done<Page<BatchRecord>> done);
  // Finished lines are kept; nothing is added to them once this is answered.
  void cancel(std::string id, Scope scope, Done<BatchRecord> done);

 private:
  StoreThread& thread_;
  std::function<int64_t()> now_s_;
};

}  // namespace skein
