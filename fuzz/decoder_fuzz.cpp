// Any bytes as a GGUF model: from its weights to the logits of two tokens, or an encoder's rows,
// within a small memory.
#include <cstdint>
#include <memory>
#include <vector>

#include "backend/cpu/cpu_backend.h"
#include "base/check.h"
#include "base/compute_pool.h"
#include "memory_file.h"
#include "model/decoder.h"

namespace {

using namespace skein;

constexpr uint64_t kMemoryBytes = uint64_t{64} << 20;

void run(Decoder& decoder, Backend& backend) {
  auto cache = backend.make_kv(kv_spec(decoder.spec(), KvType::kF32), 1);
  if (!cache.ok()) return;
  const TokenId last = static_cast<TokenId>(decoder.spec().vocab - 1);
  const std::vector<TokenId> tokens = {0, last};
  const std::vector<BlockId> blocks = {BlockId{0}};
  const std::vector<Sequence> sequences = {{.rows = 2, .blocks = blocks}};
  const std::vector<uint32_t> wanted = {1};
  if (decoder.spec().encoder) {
    (void)decoder.forward({.tokens = tokens, .sequences = sequences, .logit_rows = {}}, **cache);
    const Rows hidden = decoder.hidden(2);
    SKEIN_CHECK(hidden.rows == 2 && hidden.width == decoder.spec().hidden, "{} x {} rows",
                hidden.rows, hidden.width);
    return;
  }
  const Rows logits =
      decoder.forward({.tokens = tokens, .sequences = sequences, .logit_rows = wanted}, **cache);
  SKEIN_CHECK(logits.rows == 1 && logits.width >= decoder.spec().vocab, "{} x {} logits",
              logits.rows, logits.width);
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  if (size < 4) return 0;
  const fuzz::MemoryFile file(data, size);
  const auto source = open_gguf(file.path());
  if (!source.ok()) return 0;
  static ComputePool pool(1);
  static const std::unique_ptr<Backend> backend =
      make_cpu_backend(pool, choose_isa("scalar").value(), Precision::kDefault);
  const auto decoder = Decoder::load(
      *source, *backend,
      {.limits = {.rows = 2, .logit_rows = 1}, .max_context = 0, .memory_bytes = kMemoryBytes});
  SKEIN_CHECK(decoder.ok() || !decoder.message().empty(), "a fault without a reason");
  if (decoder.ok() && (*decoder)->max_context() >= 2) run(**decoder, *backend);
  return 0;
}
