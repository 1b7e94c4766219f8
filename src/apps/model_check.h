// Model files are read by a process without network, state or time to spare before the server reads
// them: a hostile file then costs a load, and never the server.
#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "base/sandbox.h"
#include "base/side_process.h"
#include "engine/manager/scheduler_manager.h"

namespace skein::apps {

// A process that stands by to check models as a load with this context would. It may read what
// `rules` say and write nothing; for each model it forks one that may read that model's folders
// alone. Call it before there are threads.
Result<std::unique_ptr<SideProcess>> start_model_checker(const SandboxRules& rules,
                                                         uint32_t max_context);

// `load`, after the model was found within the sandbox and `checker` has read it; the draft model
// that is loaded with it likewise, where there is one. Files that are replaced or written to
// between that and the end of the load make it fail.
SchedulerManager::Loader with_check(SchedulerManager::Loader load, SideProcess& checker,
                                    std::string draft_model = {});

}  // namespace skein::apps
