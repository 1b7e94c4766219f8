// One run of `skein serve`, from the first thread to the last.
#pragma once

#include "apps/commands.h"
#include "apps/serve_options.h"

namespace skein::apps {

// Serves until SIGTERM, SIGINT or an admin ends it. May end the process itself, with the status
// that the result would have had, where a step hangs or a model is still being loaded.
CommandResult run_server(const ServeOptions& options);

}  // namespace skein::apps
