#include "server/store/limit_store.h"

#include <utility>
#include <vector>

#include "base/log.h"

namespace skein {

Result<BucketAnswer> LimitStore::admit(const std::string& key, const KeyLimits& limits,
                                       uint64_t tokens, bool takes_all, uint64_t requests) {
  return await_for<BucketAnswer>(kPatience, [&](Done<BucketAnswer> done) {
    thread_.ask<BucketAnswer>(
        [=](Database& db) -> Result<BucketAnswer> {
          SKEIN_ASSIGN(
              const std::vector<BucketAnswer> answers,
              db.list<BucketAnswer>(
                  "SELECT requests_wait_us, tokens_wait_us, reserved FROM admit($1, $2, "
                  "$3, $4, $5, $6)",
                  {key, static_cast<int64_t>(limits.requests_per_minute),
                   static_cast<int64_t>(limits.tokens_per_minute), static_cast<int64_t>(tokens),
                   int64_t{takes_all ? 1 : 0}, static_cast<int64_t>(requests)},
                  [](const Cursor& row) {
                    return BucketAnswer{row.integer(0), row.integer(1),
                                        static_cast<uint64_t>(row.integer(2))};
                  }));
          if (answers.size() != 1) return internal_error("store: admit() has no answer");
          return answers.front();
        },
        std::move(done));
  });
}

void LimitStore::settle(const std::string& key, const KeyLimits& limits, int64_t more) {
  const auto done = [](const Result<bool>& settled) {
    if (!settled.ok()) log_debug("store: tokens were not settled: {}", settled.message());
  };
  thread_.ask<bool>(
      [=](Database& db) -> Result<bool> {
        SKEIN_TRY(db.run("SELECT 1 FROM settle($1, $2, $3, $4)",
                         {key, static_cast<int64_t>(limits.requests_per_minute),
                          static_cast<int64_t>(limits.tokens_per_minute), more})
                      .status());
        return true;
      },
      done);
}

}  // namespace skein
