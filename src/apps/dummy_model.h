// A model of a given shape with random weights, as a GGUF file: any size can be measured without a
// download. What it says is noise.
#pragma once

#include <string>
#include <utility>

#include "base/status.h"

namespace skein::apps {

// A file without a name: it is gone with its owner, however the process ends.
class TemporaryFile {
 public:
  // In the system's folder for such files.
  static Result<TemporaryFile> create();
  ~TemporaryFile();
  TemporaryFile(TemporaryFile&& other) noexcept : file_(std::exchange(other.file_, -1)) {}
  TemporaryFile& operator=(TemporaryFile&&) = delete;

  std::string path() const;  // by which this process can open it

 private:
  explicit TemporaryFile(int file) : file_(file) {}
  int file_;
};

// `config` is a config.json of the families llama, mistral, mixtral, qwen2, qwen3 or qwen3_moe;
// kUnimplemented for another. Matrices are of the quantization `quant` (a name of
// tensor/quant/formats.def); the token table and the output are Q6_K or Q8_0, as quantizers leave
// them, where that is more; rows that are no whole blocks of it are Q8_0, as quantizers do.
Result<TemporaryFile> write_dummy_model(const std::string& config, const std::string& quant);

}  // namespace skein::apps
