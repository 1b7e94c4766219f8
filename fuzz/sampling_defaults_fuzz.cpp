// Any bytes as generation_config.json: the defaults that come of it are valid, whatever it says.
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "base/check.h"
#include "engine/loading/load_text.h"
#include "small_folder.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace skein;
  static const fuzz::SmallFolder folder;
  folder.write("generation_config.json", {reinterpret_cast<const char*>(data), size});
  const auto source = folder.open();
  if (!source.ok()) return 0;
  std::vector<std::string> ignored;
  const Status valid = read_sampling_defaults(*source, ignored).validate(UINT32_MAX);
  SKEIN_CHECK(valid.ok(), "{}", valid.message());
  return 0;
}
