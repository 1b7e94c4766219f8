// ServeSettings: what the options of `skein serve` come to, in the structs of those who use them.
#pragma once

#include "apps/options.h"
#include "apps/serve_options.h"
#include "base/status.h"
#include "engine/manager/load_served_model.h"
#include "server/settings.h"

namespace skein::apps {

struct ServeSettings {
  ModelFlags model;
  ServingOptions serving;
  SchedulerManager::Options manager;
  ServerSettings server;
};

// Every option in its place, checked where its text is more than a value. An amount of memory that
// is 0 is chosen here, but for the manager's, which depends on the backend. Errors name the option.
Result<ServeSettings> serve_settings(const ServeOptions& options);

}  // namespace skein::apps
