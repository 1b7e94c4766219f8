// Which models a server offers: those of its command line, then those of the model folder.
#pragma once

#include <string>
#include <vector>

#include "base/status.h"
#include "engine/manager/scheduler_manager.h"
#include "format/locate.h"

namespace skein::apps {

// One per `models`, each found (as locate_model does) and named: by `names` in order, then by
// itself. kInvalidArgument: more names than models, or two models of one name.
Result<std::vector<ModelConfig>> models_to_load(const std::vector<std::string>& models,
                                                const std::vector<std::string>& names,
                                                const ModelFolders& folders);

// The models of the model folder beside `taken`: no id and no file twice.
std::vector<ModelConfig> models_in_folder(const std::string& models_folder,
                                          const std::vector<ModelConfig>& taken);

}  // namespace skein::apps
