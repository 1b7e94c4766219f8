// A root folder with files as the kernel writes them, for what looks into /proc and /sys.
#pragma once

#include <filesystem>
#include <fstream>
#include <gtest/gtest.h>
#include <string>
#include <unistd.h>

namespace skein::testing {

class RootFolder {
 public:
  RootFolder() : path_(::testing::TempDir() + "skein.root." + std::to_string(::getpid())) {
    std::filesystem::remove_all(path_);
  }
  ~RootFolder() { std::filesystem::remove_all(path_); }
  RootFolder(const RootFolder&) = delete;
  RootFolder& operator=(const RootFolder&) = delete;

  void write(const std::string& name, const std::string& text) const {
    const std::filesystem::path path = path_ + "/" + name;
    std::filesystem::create_directories(path.parent_path());
    std::ofstream(path) << text;
  }
  const std::string& path() const { return path_; }

 private:
  std::string path_;
};

}  // namespace skein::testing
