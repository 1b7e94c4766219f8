// ServeSettings: what the options of `skein serve` come to, in the structs of those who use them.
#pragma once

#include <string>
#include <vector>

#include "apps/options.h"
#include "apps/serve_options.h"
#include "base/status.h"
#include "engine/manager/load_served_model.h"
#include "engine/manager/scheduler_manager.h"
#include "format/locate.h"
#include "server/settings.h"

namespace skein::apps {

// The models of a command line: one per `models`, each found (as locate_model does) and named: by
// `names` in order, then by itself. kInvalidArgument: more names than models, or two models of one
// name.
Result<std::vector<ModelConfig>> models_to_load(const std::vector<std::string>& models,
                                                const std::vector<std::string>& names,
                                                const ModelFolders& folders);

// The models of the model folder beside `taken`: no id and no file twice.
std::vector<ModelConfig> models_in_folder(const std::string& models_folder,
                                          const std::vector<ModelConfig>& taken);

// An operator's wish for the sampling of one model, or of all of them (*).
struct SamplingWish {
  std::string model;
  std::vector<SamplingValue> values;
};
// From "NAME temperature=0.2 top_p=0.9". Errors name the option.
Result<std::vector<SamplingWish>> parse_sampling_wishes(const std::vector<std::string>& texts);
// Later ones count before earlier ones. kNotFound after all when a name is nobody's.
Status set_sampling(const std::vector<SamplingWish>& wishes, std::vector<ModelConfig>& models);

// What routers are told of models that they reach by gRPC: `folders` are of their tokenizers, in
// order; a model without one is its own folder. kNotFound where there is no tokenizer.
Result<std::vector<GrpcSettings::Model>> grpc_models(const std::vector<ModelConfig>& models,
                                                     const std::vector<std::string>& folders);

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
