// A model of a given shape with random weights, as a GGUF file: any size can be measured without a
// download. What it says is noise.
#pragma once

#include <string>

#include "base/status.h"

namespace skein::apps {

// A file that is gone with its owner.
class TemporaryFile {
 public:
  // In the system's folder for such files.
  static Result<TemporaryFile> create(const std::string& suffix);
  ~TemporaryFile();
  TemporaryFile(TemporaryFile&& other) noexcept : path_(std::move(other.path_)) {
    other.path_.clear();
  }
  TemporaryFile& operator=(TemporaryFile&&) = delete;

  const std::string& path() const { return path_; }

 private:
  explicit TemporaryFile(std::string path) : path_(std::move(path)) {}
  std::string path_;
};

// `config` is a config.json of the families llama, mistral, mixtral, qwen2, qwen3 or qwen3_moe;
// kUnimplemented for another. Matrices are of the quantization `quant` (a name of
// tensor/quant/formats.def); the token table and the output are Q6_K or Q8_0, as quantizers leave
// them, where that is more; rows that are no whole blocks of it are Q8_0, as quantizers do.
Result<TemporaryFile> write_dummy_model(const std::string& config, const std::string& quant);

}  // namespace skein::apps
