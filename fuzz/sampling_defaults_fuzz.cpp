// Any bytes as generation_config.json: the defaults that come of it are valid, whatever it says.
#include <cstdint>

#include "base/check.h"
#include "engine/loading/sampling_defaults.h"
#include "small_folder.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace skein;
  static const fuzz::SmallFolder folder;
  folder.write("generation_config.json", {reinterpret_cast<const char*>(data), size});
  const auto source = folder.open();
  if (!source.ok()) return 0;
  const Status valid = find_sampling_defaults(*source, {}).params.validate(UINT32_MAX);
  SKEIN_CHECK(valid.ok(), "{}", valid.message());
  return 0;
}
