#include "server/store/usage_meter.h"

namespace skein {

void UsageMeter::add(const std::string& owner, const UsageCounts& counts) {
  const std::lock_guard lock(mutex_);
  UsageCounts& sum = sums_[owner];
  sum.requests += counts.requests;
  sum.prompt_tokens += counts.prompt_tokens;
  sum.cached_tokens += counts.cached_tokens;
  sum.output_tokens += counts.output_tokens;
}

Status UsageMeter::flush(Database& db) {
  Sums sums;
  {
    const std::lock_guard lock(mutex_);
    sums.swap(sums_);
  }
  if (sums.empty()) return {};
  Status status = db.transaction([&] { return write(db, sums); });
  if (status.ok()) return status;
  for (const auto& [owner, counts] : sums) add(owner, counts);
  return status;
}

Status UsageMeter::write(Database& db, const Sums& sums) {
  for (const auto& [owner, counts] : sums) {
    SKEIN_TRY(db.exec(
        "INSERT INTO usage VALUES ($1, $2, $3, $4, $5) ON CONFLICT (owner) DO UPDATE "
        "SET requests = usage.requests + excluded.requests, prompt_tokens = "
        "usage.prompt_tokens + excluded.prompt_tokens, "
        "cached_tokens = usage.cached_tokens + excluded.cached_tokens, output_tokens "
        "= usage.output_tokens + excluded.output_tokens",
        {owner, static_cast<int64_t>(counts.requests), static_cast<int64_t>(counts.prompt_tokens),
         static_cast<int64_t>(counts.cached_tokens), static_cast<int64_t>(counts.output_tokens)}));
  }
  return {};
}

}  // namespace skein
