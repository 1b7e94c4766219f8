#include "sim/oracle_model.h"

#include <algorithm>

namespace skein::sim {

Status OracleModel::run_segment(const Segment& segment, SimRequest& request) {
  request.extend_digests();
  const uint32_t end = segment.start + segment.count - static_cast<uint32_t>(segment.drafts.size());
  if (end > request.digests.size()) {
    return internal_error("request {} computes up to {} but has {} tokens", segment.request.value,
                          end, request.digests.size());
  }
  if (segment.blocks.empty()) return {};  // nothing is kept of it
  const uint32_t readable = segment.writes_kv ? segment.start : end;
  for (uint32_t p = 0; p < readable; p += kBlockTokens) {
    const uint32_t n = std::min(kBlockTokens, readable - p);
    const uint64_t* cells = &cell(segment, p);
    if (std::equal(cells, cells + n, request.digests.begin() + p)) continue;
    return internal_error(
        "request {} reads KV at positions {} to {} that is not its own (block {})",
        segment.request.value, p, p + n - 1, segment.blocks[p / kBlockTokens].value);
  }
  if (!segment.writes_kv) return {};
  for (uint32_t p = segment.start; p < end; ++p) {
    if (cell(segment, p) == request.digests[p] && p >= request.again_to) {
      return internal_error("request {} computes position {} again (block {})",
                            segment.request.value, p, segment.blocks[p / kBlockTokens].value);
    }
    cell(segment, p) = request.digests[p];
  }
  uint64_t digest = request.digests[end - 1];
  for (size_t i = 0; i < segment.drafts.size(); ++i) {
    digest = next_digest(digest, segment.drafts[i]);
    cell(segment, end + static_cast<uint32_t>(i)) = digest;
  }
  return {};
}

void OracleModel::run_orphan(const Segment& segment) {
  if (!segment.writes_kv || segment.blocks.empty()) return;
  for (uint32_t p = segment.start; p < segment.start + segment.count; ++p)
    cell(segment, p) = kPoison;
}

void OracleModel::poison_blocks(const Segment& segment, uint32_t first) {
  for (uint32_t p = first * kBlockTokens; p < segment.blocks.size() * kBlockTokens; ++p)
    cell(segment, p) = kPoison;
}

}  // namespace skein::sim
