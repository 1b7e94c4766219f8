// The files of web/, as cmake/embed_web.cmake compiles them into the binary.
#pragma once

#include <span>
#include <string_view>

namespace skein {

struct ConsoleFile {
  std::string_view name;  // "index.html"
  std::string_view content_type;
  std::string_view etag;  // with its quotes
  std::string_view bytes;
};

std::span<const ConsoleFile> console_files();

}  // namespace skein
