// Requests whose next token takes long to draw: they sit out until it is known.
#include "sched/scheduler.h"

namespace skein {

// Its last row is computed again when the token is known, which is what the gap says.
void ContinuousBatchingScheduler::put_off(BatchRequest& request, const Segment& segment) {
  request.put_off = true;
  request.computed = request.planned = segment.known_end() - 1;
  request.drafts.clear();
  request.odds.clear();
  kv_.publish(request.table, request.tokens, request.computed);
}

void ContinuousBatchingScheduler::resume(RequestId id) {
  if (const auto it = by_id_.find(id); it != by_id_.end()) it->second->put_off = false;
}

}  // namespace skein
