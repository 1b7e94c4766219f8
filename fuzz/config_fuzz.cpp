// Any bytes as the config of a model: config.json beside a few tensors, or the metadata of a GGUF
// file (the bytes decide by their magic). What becomes a spec is a spec that the decoder can size.
#include <algorithm>
#include <cmath>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "backend/host/kv.h"
#include "base/check.h"
#include "format/gguf.h"
#include "model/families/family.h"
#include "model/workspace.h"

namespace {

using namespace skein;

constexpr uint32_t kContexts[] = {0, 4096};

void use(const Result<ModelDescription>& description) {
  if (!description.ok()) {
    SKEIN_CHECK(!description.message().empty(), "a fault without a reason");
    return;
  }
  const ModelSpec& spec = description->spec;
  SKEIN_CHECK(!spec.family.empty(), "a spec without a family");
  SKEIN_CHECK(spec.heads % spec.kv_heads == 0, "{} heads, {} KV heads", spec.heads, spec.kv_heads);
  for (const RopeSpec& rope : spec.ropes) {
    SKEIN_CHECK(2 * rope.frequencies.size() <= spec.head_dim, "a rope wider than its head");
    for (const float f : rope.frequencies) SKEIN_CHECK(std::isfinite(f) && f >= 0, "angle {}", f);
  }
  const uint64_t workspace = Workspace::bytes_for(spec, {.rows = 256, .logit_rows = 32});
  SKEIN_CHECK(workspace >= uint64_t{4} * 256 * spec.hidden, "a workspace of {} bytes", workspace);
  SKEIN_CHECK(HostKv::block_bytes(kv_spec(spec, KvType::kF32)) > 0, "blocks of nothing");
  for (const std::string& module : description->names.qkv.modules) {
    SKEIN_CHECK(expand(module, 7).find('{') == std::string::npos, "a name with a hole: {}", module);
  }
}

// Sorted, as a source has them.
std::vector<NamedTensor> some_tensors() {
  static constexpr float kZeros[8] = {};
  std::vector<NamedTensor> tensors;
  for (const char* name : {"language_model.model.embed_tokens.weight", "lm_head.weight",
                           "model.layers.0.mlp.experts.gate_up_proj"}) {
    tensors.push_back({name, {ElementType::kF32, {2, 4}, std::as_bytes(std::span(kZeros))}});
  }
  return tensors;
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::string_view text(reinterpret_cast<const char*>(data), size);
  if (text.starts_with("GGUF")) {
    auto file = gguf::parse_gguf(std::as_bytes(std::span(data, size)));
    if (!file.ok()) return 0;
    std::sort(file->tensors.begin(), file->tensors.end(),
              [](const NamedTensor& a, const NamedTensor& b) { return a.name < b.name; });
    for (const uint32_t context : kContexts) {
      use(describe_gguf(file->metadata, {file->tensors, context}));
    }
    return 0;
  }
  const auto json = parse_json(text);
  if (!json.ok()) return 0;
  const std::vector<NamedTensor> tensors = some_tensors();
  for (const uint32_t context : kContexts) {
    use(describe_config(*json, {tensors, context}));
    use(describe_config(*json, {{}, context}));
  }
  return 0;
}
