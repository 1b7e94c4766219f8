#include "sim/oracle_model.h"

#include <algorithm>

namespace skein::sim {

Status OracleModel::run_row(const PlanRow& row, SimRequest& request) {
  request.extend_digests();
  const uint32_t end = row.start + row.count - static_cast<uint32_t>(row.drafts.size());
  if (end > request.digests.size()) {
    return internal_error("request {} computes up to {} but has {} tokens", row.request.value, end,
                          request.digests.size());
  }
  const uint32_t readable = row.writes_kv ? row.start : end;
  for (uint32_t p = 0; p < readable; p += kBlockTokens) {
    const uint32_t n = std::min(kBlockTokens, readable - p);
    const uint64_t* cells = &cell(row, p);
    if (std::equal(cells, cells + n, request.digests.begin() + p)) continue;
    return internal_error(
        "request {} reads KV at positions {} to {} that is not its own (block {})",
        row.request.value, p, p + n - 1, row.blocks[p / kBlockTokens].value);
  }
  if (!row.writes_kv) return {};
  for (uint32_t p = row.start; p < end; ++p) {
    if (cell(row, p) == request.digests[p]) {
      return internal_error("request {} computes position {} again (block {})", row.request.value,
                            p, row.blocks[p / kBlockTokens].value);
    }
    cell(row, p) = request.digests[p];
  }
  uint64_t digest = request.digests[end - 1];
  for (size_t i = 0; i < row.drafts.size(); ++i) {
    digest = next_digest(digest, row.drafts[i]);
    cell(row, end + static_cast<uint32_t>(i)) = digest;
  }
  return {};
}

void OracleModel::run_orphan(const PlanRow& row) {
  if (!row.writes_kv) return;
  for (uint32_t p = row.start; p < row.start + row.count; ++p) cell(row, p) = kPoison;
}

void OracleModel::poison_blocks(const PlanRow& row, uint32_t first) {
  for (uint32_t p = first * kBlockTokens; p < row.blocks.size() * kBlockTokens; ++p)
    cell(row, p) = kPoison;
}

}  // namespace skein::sim
