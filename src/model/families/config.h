// A family reads these: the numbers of config.json or of GGUF's metadata, and a look at the
// tensors.
//
// Reads never fail on the spot: the first fault is kept, the read gives its fallback (or the least
// value that is allowed), and whoever asked for the spec looks at status() in the end. So a
// family's file is a list of facts.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/status.h"
#include "format/gguf_metadata.h"
#include "format/json.h"
#include "tensor/tensor.h"

namespace skein {

// The tensors of a file, sorted by name; and the context that will be served (0: all there is).
struct ModelFile {
  std::span<const NamedTensor> tensors;
  uint32_t max_context = 0;

  const NamedTensor* find(std::string_view name) const;
};

class Config {
 public:
  explicit Config(const ModelFile& file, Status& fault) : file_(file), fault_(fault) {}
  virtual ~Config() = default;

  const ModelFile& file() const { return file_; }
  const Status& status() const { return fault_; }
  void fail(Status status) const;  // keeps the first

  virtual bool has(std::string_view key) const = 0;  // null is as good as absent

  // Whole numbers, 1 to kMaxCount; the _or forms take 0 too.
  uint32_t count(std::string_view key) const;
  uint32_t count_or(std::string_view key, uint32_t fallback) const;
  double number(std::string_view key) const;
  double number_or(std::string_view key, double fallback) const;
  bool flag_or(std::string_view key, bool fallback) const;
  std::string text_or(std::string_view key, std::string_view fallback) const;

  static constexpr uint32_t kMaxCount = 1 << 30;

 protected:
  virtual Result<int64_t> integer_at(std::string_view key) const = 0;
  virtual Result<double> number_at(std::string_view key) const = 0;
  virtual Result<bool> flag_at(std::string_view key) const = 0;
  virtual Result<std::string> text_at(std::string_view key) const = 0;

 private:
  uint32_t count_between(std::string_view key, uint32_t least) const;
  template <class T>
  T value_of(Result<T> read, T fallback) const;

  const ModelFile& file_;
  Status& fault_;
};

// An object of config.json.
class HfConfig final : public Config {
 public:
  HfConfig(const Json& object, const ModelFile& file, Status& fault)
      : Config(file, fault), object_(&object) {}

  const Json& object() const { return *object_; }
  bool has(std::string_view key) const override;
  // The object under that key, an empty one when it is absent. Faults are this one's.
  HfConfig part(std::string_view key) const;
  // Another object in the place of this one; it must outlive what is returned.
  HfConfig with(const Json& object) const;
  std::vector<float> numbers(std::string_view key) const;
  std::vector<std::string> texts(std::string_view key) const;

 protected:
  Result<int64_t> integer_at(std::string_view key) const override;
  Result<double> number_at(std::string_view key) const override;
  Result<bool> flag_at(std::string_view key) const override;
  Result<std::string> text_at(std::string_view key) const override;

 private:
  Result<const Json*> at(std::string_view key, std::string_view wanted) const;

  const Json* object_;
};

// The keys of one architecture in GGUF's metadata: "block_count" is "llama.block_count". Numbers
// per layer are taken where they are all the same.
class GgufConfig final : public Config {
 public:
  GgufConfig(const gguf::Metadata& metadata, std::string_view architecture, const ModelFile& file,
             Status& fault)
      : Config(file, fault), metadata_(metadata), architecture_(architecture) {}

  const std::string& architecture() const { return architecture_; }
  bool has(std::string_view key) const override;
  // The floats of a small one-dimensional tensor; empty when there is none of that name.
  std::vector<float> floats(std::string_view tensor) const;

 protected:
  Result<int64_t> integer_at(std::string_view key) const override;
  Result<double> number_at(std::string_view key) const override;
  Result<bool> flag_at(std::string_view key) const override;
  Result<std::string> text_at(std::string_view key) const override;

 private:
  std::string full(std::string_view key) const;
  const gguf::Metadata& metadata_;
  std::string architecture_;
};

}  // namespace skein
