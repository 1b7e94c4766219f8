#include "model/kv_pool.h"

#include <utility>

namespace skein {
namespace {

uint64_t layer_bytes(const ModelSpec& spec, KvType type) {
  return uint64_t{spec.kv_heads} * KvLayer::head_bytes(spec.head_dim, type);
}

}  // namespace

uint64_t KvPool::bytes_per_block(const ModelSpec& spec, KvType type) {
  return layer_bytes(spec, type) * spec.layers.size();
}

Result<KvPool> KvPool::create(Backend& backend, const ModelSpec& spec, uint32_t blocks,
                              KvType type) {
  if (blocks == 0) return invalid_argument("a KV pool of 0 blocks, it must have 1 at least");
  KvPool pool;
  pool.blocks_ = blocks;
  pool.heads_ = spec.kv_heads;
  pool.head_dim_ = spec.head_dim;
  pool.layers_ = static_cast<uint32_t>(spec.layers.size());
  pool.type_ = type;
  pool.layer_bytes_ = layer_bytes(spec, type);
  pool.block_bytes_ = bytes_per_block(spec, type);
  if (pool.block_bytes_ > SIZE_MAX / 2 / blocks) {
    return resource_exhausted("a KV pool of {} blocks of {} bytes each leaves the address space",
                              blocks, pool.block_bytes_);
  }
  auto memory = backend.allocate(pool.block_bytes_ * blocks);
  if (!memory.ok()) {
    return Status(memory.status().code(), fmt::format("a KV pool of {} blocks of {} bytes each: {}",
                                                      blocks, pool.block_bytes_, memory.message()));
  }
  pool.memory_ = std::move(memory).value();
  return pool;
}

KvLayer KvPool::layer(uint32_t index) const {
  SKEIN_CHECK(index < layers_, "layer {} of {}", index, layers_);
  return {memory_.data() + index * layer_bytes_, block_bytes_, heads_, head_dim_, type_};
}

}  // namespace skein
