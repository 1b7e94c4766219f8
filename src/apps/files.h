// Files and folders, for commands: whole files, and the one place that knows the environment's
// folders.
#pragma once

#include <string>

#include "base/status.h"
#include "format/locate.h"

namespace skein::apps {

// kNotFound or kDataLoss, naming the path.
Result<std::string> read_file(const std::string& path);
// Standard input to its end.
Result<std::string> read_stdin();
Status write_file(const std::string& path, const std::string& text);

// skein's model folder (${XDG_CACHE_HOME:-~/.cache}/skein/models) and Hugging Face's cache
// (${HF_HUB_CACHE}, ${HF_HOME}/hub or ~/.cache/huggingface/hub).
ModelFolders model_folders();

// M of the command line: a GGUF file, a Hugging Face folder, a name, or "default".
Result<std::string> model_path(const std::string& model);

// Where skein keeps its state unless --state-dir says otherwise: ${XDG_STATE_HOME:-~/.local/state}
// and "skein"; empty when neither variable is set.
std::string default_state_dir();

}  // namespace skein::apps
