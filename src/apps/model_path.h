// What the user typed for a model, to a path: the one place that knows the environment's folders.
#pragma once

#include <string>

#include "base/status.h"
#include "format/locate.h"

namespace skein::apps {

// skein's model folder (${XDG_CACHE_HOME:-~/.cache}/skein/models) and Hugging Face's cache
// (${HF_HUB_CACHE}, ${HF_HOME}/hub or ~/.cache/huggingface/hub).
ModelFolders model_folders();

// M of the command line: a GGUF file, a Hugging Face folder, a name, or "default".
Result<std::string> model_path(const std::string& model);

}  // namespace skein::apps
