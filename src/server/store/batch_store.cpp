#include "server/store/batch_store.h"

#include <utility>

namespace skein {
void BatchStore::create(NewBatch batch, Done<BatchRecord> done) {
  thread_.write<BatchRecord>([batch = std::move(batch), now_s = now_s_()](
                                 Database& db) { return create_batch(db, batch, now_s); },
                             std::move(done));
}

void BatchStore::get(std::string id, Scope scope, Done<BatchRecord> done) {
  thread_.read<BatchRecord>([id = std::move(id), scope = std::move(scope)](
                                Database& db) { return find_batch(db, id, scope); },
                            std::move(done));
}

void BatchStore::list(Scope scope, ListOptions options, Done<Page<BatchRecord>> done) {
  thread_.read<Page<BatchRecord>>([scope = std::move(scope), options = std::move(options)](
                                      Database& db) { return list_batches(db, scope, options); },
                                  std::move(done));
}

void BatchStore::cancel(std::string id, Scope scope, Done<BatchRecord> done) {
  thread_.write_freeing<BatchRecord>(
      [id = std::move(id), scope = std::move(scope), now_s = now_s_()](Database& db) {
        return cancel_batch(db, id, scope, now_s);
      },
      std::move(done));
}

}  // namespace skein
