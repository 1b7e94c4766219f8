// The kernels of the CUDA backend, as its host code launches them: each enqueues on a stream and
// returns. All pointers are of the device. They compute what arithmetic.h defines, bit for bit: a
// sum's 16 lanes are 16 threads, and nothing of a launch's shape enters a result.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cuda_runtime_api.h>

#include "backend/f16_tiles.h"
#include "backend/kv.h"
#include "backend/op_params.h"
#include "base/ids.h"

namespace skein::cuda {

// Rows as memory.h has them, with the address that it keeps closed.
struct DeviceRows {
  float* data = nullptr;
  uint32_t rows = 0;
  uint32_t width = 0;
  size_t stride = 0;
};

// Whether four numbers of a row can be read at once.
inline bool is_aligned(const DeviceRows& rows) {
  return reinterpret_cast<uintptr_t>(rows.data) % 16 == 0 && rows.stride % 4 == 0;
}

struct DevicePeak;

// A step's record on the device: of each row its token, position, whether it is stored, where the
// blocks of its sequence begin in `blocks`, how many rows of the sequence come before it in the
// step, and how many there are from it on.
struct StepView {
  const DevicePeak* const* before = nullptr;  // where a token of ~i finds the peak that it is
  const int32_t* tokens = nullptr;
  const uint32_t* positions = nullptr;
  const uint32_t* writes = nullptr;
  const uint32_t* first_blocks = nullptr;
  const uint32_t* places = nullptr;
  const uint32_t* rows_left = nullptr;
  const uint32_t* logit_rows = nullptr;
  const uint32_t* blocks = nullptr;
};

// A matrix in float32. What lies between `inputs` and `stride`, the next multiple of 16, is zeros.
struct DeviceMatrix {
  const float* weights = nullptr;
  uint32_t outputs = 0;
  uint32_t inputs = 0;
  size_t stride = 0;
};

struct DeviceNorm {
  NormKind kind = NormKind::kRms;
  float epsilon = 0;
  const float* weight = nullptr;
  const float* bias = nullptr;
  uint32_t parts = 1;
  bool weight_per_part = false;
};

struct DeviceRoutes {
  uint32_t* experts = nullptr;
  float* weights = nullptr;
  uint32_t used = 0;
};

// One layer of a paged cache. Block b, head h holds its keys, [head_dim][kBlockTokens], then its
// values, [kBlockTokens][head_dim], either followed by [kBlockTokens] float scales for kInt8.
// in_pairs: keys are [kBlockTokens][stride] and values [stride][kBlockTokens], with zeros from
// head_dim on, in the places that key_index and value_index say.
struct DeviceKv {
  std::byte* data = nullptr;  // of block 0
  size_t block_bytes = 0;     // from a block to the next
  size_t half_bytes = 0;      // keys of one head of one block; values take as many
  uint32_t heads = 0;
  uint32_t head_dim = 0;
  uint32_t stride = 0;
  KvType type = KvType::kF32;
  bool in_pairs = false;
};

// Where a number of a head lies with in_pairs. Pieces of eight numbers change places within a row,
// so that what a tensor core reads at once of several rows lies in different banks of shared
// memory.
SKEIN_HOST_DEVICE constexpr uint32_t key_index(uint32_t stride, uint32_t slot, uint32_t d) {
  const uint32_t pieces = stride / 8, turns = pieces % 8 == 0 ? 8 : pieces % 4 == 0 ? 4 : 2;
  return slot * stride + ((d / 8) ^ (slot % turns)) * 8 + d % 8;
}
SKEIN_HOST_DEVICE constexpr uint32_t value_index(uint32_t slot, uint32_t d) {
  return d * uint32_t{kBlockTokens} + ((slot / 8) ^ (d / 2 % 4)) * 8 + slot % 8;
}

struct DeviceAttention {
  uint32_t heads = 0;
  float scale = 1;
  float softcap = 0;
  uint32_t window = 0;
  const float* sinks = nullptr;
};

// Where the weights of up to kMost experts are; a kernel's parameters are 4 KiB at most.
struct ExpertTable {
  static constexpr uint32_t kMost = 256;
  const float* weights[kMost];
  uint32_t first = 0;  // the number of the first of them
  uint32_t count = 0;
};

// A few words from page-locked memory of the host, by a kernel: the engine that copies takes twice
// as long to begin. There is room for a multiple of four on either side.
void take_up(const uint32_t* from, uint32_t* to, size_t words, cudaStream_t stream);

void embed(const DeviceMatrix& table, const StepView& step, float scale, DeviceRows out,
           cudaStream_t stream);
void norm(DeviceRows x, const DeviceNorm& params, DeviceRows out, cudaStream_t stream);
void add(DeviceRows x, DeviceRows delta, float scale, cudaStream_t stream);
void activate(DeviceRows x, const ActivationParams& params, DeviceRows out, cudaStream_t stream);
void rope_angles(const StepView& step, const float* frequencies, float magnitude, DeviceRows out,
                 cudaStream_t stream);
void combine(DeviceRows x, const DeviceRoutes& routes, DeviceRows out, cudaStream_t stream);
void gather(DeviceRows x, const StepView& step, DeviceRows out, cudaStream_t stream);
void finish_logits(DeviceRows x, float scale, float softcap, cudaStream_t stream);
void route(DeviceRows x, RouterKind kind, const DeviceRoutes& routes, cudaStream_t stream);

// `bias` [outputs] or nullptr.
void multiply(DeviceRows x, const DeviceMatrix& matrix, const float* bias, DeviceRows out,
              cudaStream_t stream);
// Of the rows that go to experts of the table; `shape` is that of every expert, and its weights are
// none. `biases` [experts, outputs] or nullptr.
void multiply_experts(DeviceRows x, const ExpertTable& table, const DeviceMatrix& shape,
                      const float* biases, const DeviceRoutes& routes, DeviceRows out,
                      cudaStream_t stream);

// Random numbers where nobody has others (seeded_backend.h): small ones, and tiles whose numbers
// are as usual.
void fill_floats(float* to, size_t count, uint64_t seed, cudaStream_t stream);
void fill_tiles(const F16Tiles& tiles, std::byte* to, uint64_t seed, cudaStream_t stream);

// Turns the first angles.width elements of each head of q and k (no data: none), and stores k and
// v.
void turn_and_store(DeviceRows q, DeviceRows k, DeviceRows v, RopeLayout layout, DeviceRows angles,
                    const StepView& step, const DeviceKv& cache, cudaStream_t stream);
// Heads have at most kMostHeadDim dimensions: they are in shared memory.
inline constexpr uint32_t kMostHeadDim = 4096;
void attend(DeviceRows q, const StepView& step, const DeviceKv& cache,
            const DeviceAttention& params, DeviceRows out, cudaStream_t stream);

}  // namespace skein::cuda
