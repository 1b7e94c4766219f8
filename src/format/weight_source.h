// A model on disk, opened: its tensors by name, and what the files say about the rest. One noun for
// GGUF files (whole or split) and Hugging Face folders (safetensors, whole, sharded or quantized by
// MLX).
//
//   SKEIN_ASSIGN(const WeightSource source, open_model(path));
//   SKEIN_ASSIGN(const TensorView embedding, source.get("token_embd.weight"));
//
// Nothing is read but headers and side files; tensors are views of mapped files that live as long
// as the source (moving it keeps them valid). Immutable, so any thread may read.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/mapped_file.h"
#include "base/status.h"
#include "format/gguf_metadata.h"
#include "format/hf_documents.h"
#include "tensor/quant/affine.h"
#include "tensor/tensor.h"

namespace skein {

enum class SourceKind : uint8_t { kGguf, kHuggingFace };

class WeightSource {
 public:
  SourceKind kind() const { return kind_; }
  const std::string& path() const { return path_; }
  size_t file_count() const { return files_.size(); }

  std::span<const NamedTensor> tensors() const { return tensors_; }  // sorted by name
  const NamedTensor* find(std::string_view name) const;              // nullptr when there is none
  Result<TensorView> get(std::string_view name) const;               // kNotFound names the tensor

  // The key-value pairs of a GGUF file (of the first part of a split one); empty for a folder.
  const gguf::Metadata& metadata() const { return metadata_; }
  // The documents of a folder; all of them null for a GGUF file.
  const HfDocuments& documents() const { return documents_; }

  // The chat template that the files hold: the default one, or the one of that name ("tool_use").
  // nullopt when there is none.
  Result<std::optional<std::string_view>> chat_template(std::string_view name = {}) const;

  // The matrix that MLX quantized as `module`.weight, .scales and .biases; nullopt when the module
  // is not quantized so. open_model has checked that all of them fit together.
  Result<std::optional<AffineView>> affine(std::string_view module) const;

  // Gives memory that holds these bytes of a tensor back; whoever reads them again waits for the
  // file. Bytes that are no part of the source are left alone.
  void release(std::span<const std::byte> bytes) const;
  void release() const;  // all of them

  // kDataLoss when a file was written to since it was opened (base/mapped_file.h).
  Status check_unchanged() const;

 private:
  friend Result<WeightSource> open_gguf(const std::string& path);
  friend Result<WeightSource> open_hf_folder(const std::string& path);
  WeightSource() = default;
  Status set_tensors(
      std::vector<NamedTensor> tensors);  // sorts; refuses names that are there twice

  SourceKind kind_ = SourceKind::kGguf;
  std::string path_;
  std::vector<MappedFile> files_;
  std::vector<NamedTensor> tensors_;
  gguf::Metadata metadata_;
  HfDocuments documents_;
};

// `path` is a GGUF file (any part of a split one), or a folder with config.json and safetensors.
// Names and the default model are the business of format/locate.h. Errors name the file.
Result<WeightSource> open_model(const std::string& path);

Result<WeightSource> open_gguf(const std::string& path);
Result<WeightSource> open_hf_folder(const std::string& path);

}  // namespace skein
