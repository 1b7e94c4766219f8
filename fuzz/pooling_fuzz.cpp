// Any bytes as the files that say how a model embeds: modules.json where they begin as an array,
// else the config of its Pooling module. What comes of it is a kind, a reason why not, or nothing.
#include <cstdint>
#include <string_view>

#include "base/check.h"
#include "engine/loading/vectors.h"
#include "small_folder.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace skein;
  static const fuzz::SmallFolder folder;
  const std::string_view bytes(reinterpret_cast<const char*>(data), size);
  const bool is_list = bytes.starts_with('[');
  std::filesystem::create_directories(folder.path() + "/1_Pooling");
  folder.write("modules.json", is_list ? bytes : "[]");
  folder.write("1_Pooling/config.json", is_list ? R"({"pooling_mode_lasttoken":true})" : bytes);
  const auto source = folder.open();
  if (!source.ok()) return 0;
  const VectorFacts facts = read_vectors(*source, VectorKind::kMean);
  SKEIN_CHECK(facts.kind.has_value() == facts.status.ok(), "a kind and why not: {}",
              facts.status.message());
  SKEIN_CHECK(facts.kind != VectorKind::kRank, "a folder that ranks");
  SKEIN_CHECK(!facts.from.empty(), "nobody says so");
  return 0;
}
