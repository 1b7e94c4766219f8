// Requests of /v1/responses that may continue a response.
#pragma once

#include <functional>
#include <memory>

#include "server/api/responses_request.h"
#include "server/context.h"
#include "server/router.h"

namespace skein::endpoints {

// Reads the call's body, with what it continues in front of its input, and hands both to `next`, on
// a worker; or tells the client why that is not possible. The call's memory pays for all of it.
void with_conversation(
    ServerContext& context, Call& call, const http::Responder& responder, bool counting,
    std::function<void(Call& call, api::Parsed<api::ChatRequest>&& request)> next);

}  // namespace skein::endpoints
