// A model of a given shape with random weights, as a GGUF file: any size can be measured without a
// download. What it says is noise.
#pragma once

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "base/status.h"
#include "tensor/tensor.h"

namespace skein::apps {

// A file without a name: it is gone with its owner, however the process ends.
class TemporaryFile {
 public:
  // In the system's folder for such files.
  static Result<TemporaryFile> create();
  // One that lies in memory, and takes as much of it as was written.
  static Result<TemporaryFile> in_memory();
  ~TemporaryFile();
  TemporaryFile(TemporaryFile&& other) noexcept : file_(std::exchange(other.file_, -1)) {}
  TemporaryFile& operator=(TemporaryFile&&) = delete;

  std::string path() const;  // by which this process can open it

 private:
  explicit TemporaryFile(int file) : file_(file) {}
  int file_;
};

struct DummyTensor {
  std::string name;
  ElementType type;
  std::vector<uint64_t> shape;  // outermost first

  uint64_t bytes() const;
  bool is_matrix() const { return shape.size() > 1; }
};

class DummyModel {
 public:
  // `config` is a config.json of the families llama, mistral, mixtral, qwen2, qwen3 or qwen3_moe;
  // kUnimplemented for another. Matrices are of the quantization `quant` (a name of
  // tensor/quant/formats.def, in small letters or large ones); the token table and the output are
  // Q6_K or Q8_0, as quantizers leave them, where that is more; rows that are no whole blocks of it
  // are Q8_0, as quantizers do.
  static Result<DummyModel> of_config(const std::string& config, const std::string& quant);
  // The same of a shape that has a name; kNotFound lists the names for one that is none.
  static Result<DummyModel> of_shape(const std::string& name, const std::string& quant);

  const std::vector<DummyTensor>& tensors() const { return tensors_; }
  uint64_t bytes() const;  // of the file

  // Writes what a file begins with, and the vectors; the file has its length then. Matrices are
  // holes until they are written, too.
  Status write_vectors(const TemporaryFile& file) const { return write(file, false); }
  Status write_matrices(const TemporaryFile& file) const { return write(file, true); }

 private:
  DummyModel(std::string header, std::vector<DummyTensor> tensors)
      : header_(std::move(header)), tensors_(std::move(tensors)) {}
  Status write(const TemporaryFile& file, bool matrices) const;

  std::string header_;
  std::vector<DummyTensor> tensors_;
};

}  // namespace skein::apps
