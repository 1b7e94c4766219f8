// /v1/auth/check: whether a router may let a request in, for one that asks first.
#include "server/answer/answer_account.h"
#include "server/endpoints/reply.h"

namespace skein::endpoints {
namespace {

const char* name_of_class(Priority priority) {
  constexpr const char* kNames[] = {"high", "normal", "low"};
  return kNames[static_cast<size_t>(priority)];
}

}  // namespace

// The router has refused who has no key. It counts as a request; its tokens are the router's.
void check_key(ServerContext& context, Call& call, const http::Responder& responder) {
  const Principal& who = *call.principal;
  const Admission admission = context.limiter.admit(who, 0);
  if (!admission.admitted()) {
    context.metrics.on_rejected("", Rejection::kRateLimit);
    return send_error(call, responder, rate_limit_error(admission));
  }
  responder.send({.headers = {{"X-Tenant-Id", who.is_anonymous() ? who.name : who.key_id},
                              {"X-Request-Priority", name_of_class(call.priority)}},
                  .body = "{}"});
}

}  // namespace skein::endpoints
