// From a user's word for a model to the place where it lies.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "base/status.h"

namespace skein {

// Where names are looked up. An empty folder is not looked in.
struct ModelFolders {
  std::string models;    // skein's own: GGUF files, and folders of GGUF files or safetensors
  std::string hf_cache;  // Hugging Face's: models--ORG--NAME/snapshots/REVISION
};

inline constexpr std::string_view kDefaultModelFile = "SmolLM2-135M-Instruct.Q4_1.gguf";

// The path that open_model takes, for a name from anybody: "default", "NAME" or "ORG/NAME" (with or
// without ".gguf"), or "ORG/NAME/FILE.gguf" for one of several files. A name is one to three plain
// parts and never leaves the folders: no "..", no absolute path, no hidden file.
// kNotFound says where it was looked for; kInvalidArgument says what is wrong with the name, or
// lists the files when a folder has several.
Result<std::string> locate_name(std::string_view name, const ModelFolders& folders);

// The same for the owner of the machine, who may also give the path of a file or folder. A path
// that is there comes first; "default" is always the default model ("./default" is a path).
Result<std::string> locate_model(std::string_view model, const ModelFolders& folders);

struct NamedModel {
  std::string name;  // as locate_name takes it
  std::string path;
};

// The models in the model folder, by name: files (without ".gguf"), folders that are a model, and
// the same one level down as ORG/NAME; a folder with several GGUF files has a name for each. In
// order.
std::vector<NamedModel> list_models(const std::string& models_folder);

// The name of a model at this path where nobody gave one: the file's stem, or the folder's name.
std::string stem_of_model(const std::string& path);

}  // namespace skein
