// A Hugging Face folder with the smallest weights there are, for targets that fuzz the documents
// beside them. It goes when the process ends.
#pragma once

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <string>
#include <string_view>

#include "base/check.h"
#include "format/weight_source.h"

namespace skein::fuzz {

class SmallFolder {
 public:
  SmallFolder() {
    std::string name = (std::filesystem::temp_directory_path() / "skein-fuzz-XXXXXX").string();
    SKEIN_CHECK(mkdtemp(name.data()) != nullptr, "no folder {}", name);
    path_ = name;
    const std::string_view header =
        R"({"x":{"dtype":"F32","shape":[1],"data_offsets":[0,4]}}       )";
    std::string weights(8, '\0');
    weights[0] = static_cast<char>(header.size());
    write("model.safetensors", weights + std::string(header) + std::string(4, '\0'));
    write("config.json", R"({"model_type": "llama"})");
  }
  SmallFolder(const SmallFolder&) = delete;
  SmallFolder& operator=(const SmallFolder&) = delete;
  ~SmallFolder() { std::filesystem::remove_all(path_); }

  void write(const char* name, std::string_view bytes) const {
    std::ofstream(path_ + "/" + name, std::ios::binary) << bytes;
  }
  const std::string& path() const { return path_; }
  Result<WeightSource> open() const { return open_model(path_); }

 private:
  std::string path_;
};

}  // namespace skein::fuzz
