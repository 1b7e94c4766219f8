#include "apps/files.h"

#include <array>
#include <cstdio>
#include <fstream>
#include <iterator>

namespace skein::apps {

Result<std::string> read_file(const std::string& path) {
  std::ifstream in(path, std::ios::binary);
  if (!in) return not_found("{} cannot be opened", path);
  std::string bytes{std::istreambuf_iterator<char>(in), {}};
  if (in.bad()) return data_loss("{} cannot be read", path);
  return bytes;
}

Result<std::string> read_stdin() {
  std::string bytes;
  std::array<char, 4096> part;
  while (const size_t count = std::fread(part.data(), 1, part.size(), stdin)) {
    bytes.append(part.data(), count);
  }
  if (std::ferror(stdin) != 0) return data_loss("stdin cannot be read");
  return bytes;
}

}  // namespace skein::apps
