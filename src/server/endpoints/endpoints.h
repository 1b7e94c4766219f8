// One function per group of endpoints: it binds them to the router. A new endpoint is its file
// here, its line in routes.cpp and its line in server.cpp.
#pragma once

#include "server/context.h"
#include "server/router.h"

namespace skein {

void bind_generation(Router& router, ServerContext& context);  // chat, completions, messages
void bind_text(Router& router, ServerContext& context);        // tokenize, detokenize, templates
void bind_models(Router& router, ServerContext& context);
void bind_files(Router& router, ServerContext& context);
void bind_batches(Router& router, ServerContext& context);
void bind_requests(Router& router, ServerContext& context);  // explain, cancel
void bind_health(Router& router, ServerContext& context);    // health, livez, version, metrics
void bind_admin(Router& router, ServerContext& context);

}  // namespace skein
