// The backend's memory, weights and steps.
#include "backend/cuda/cuda_backend.h"

#include <algorithm>
#include <fmt/format.h>
#include <string>

#include "backend/host/flush_denormals.h"
#include "backend/registry.h"

namespace skein {
namespace cuda {
namespace {

cudaStream_t make_stream() {
  cudaStream_t stream = nullptr;
  check(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking), "cudaStreamCreate");
  return stream;
}

// Sets a flag until it goes.
class SetForNow {
 public:
  SetForNow(bool& flag, bool value) : flag_(flag), before_(std::exchange(flag, value)) {}
  SetForNow(const SetForNow&) = delete;
  SetForNow& operator=(const SetForNow&) = delete;
  ~SetForNow() { flag_ = before_; }

 private:
  bool& flag_;
  const bool before_;
};

}  // namespace

CudaBackend::CudaBackend(const Device& device, DeviceSeat seat, bool has_f16, ComputePool& pool,
                         const cpu::KernelTable& host_kernels, std::optional<uint64_t> seed)
    : device_(device),
      seat_(std::move(seat)),
      pool_(pool),
      host_kernels_(host_kernels),
      stream_(make_stream()),
      graphs_(stream_),
      seed_(seed) {
  if (has_f16) f16_.emplace(device.processors, stream_, seed);
}

CudaBackend::~CudaBackend() {
  static_cast<void>(cudaStreamSynchronize(stream_));
  peaks_.reset();
  static_cast<void>(cudaStreamDestroy(stream_));
}

void CudaBackend::run(const Step& step, uint64_t key, FunctionRef<void()> ops) {
  const auto all = [&] {
    const SetForNow defers(defers_, true);
    ops();
    finish();
  };
  if (step.rows > kMostRecordedRows) return all();
  const uint64_t moves = step_.moves() + changed_.moves() + spans_.moves() + marks_.moves();
  graphs_.run({key, step.rows, step.logits, step_.spans(), step_.has_single_rows()},
              moves + (f16_ ? f16_->moves() : 0), all);
}

HostRows CudaBackend::read(Rows rows) {
  use();
  finish();
  const size_t row_bytes = rows.width * sizeof(float);
  auto* const to = reinterpret_cast<float*>(read_.take(rows.rows * row_bytes));
  if (rows.rows > 0 && rows.width > 0) {
    check(cudaMemcpy2DAsync(to, row_bytes, raw(rows.data), rows.stride * sizeof(float), row_bytes,
                            rows.rows, cudaMemcpyDeviceToHost, stream_),
          "read");
  }
  check(cudaStreamSynchronize(stream_), "read");
  return {to, rows.rows, rows.width, rows.width};
}

// Rows [first, first + count) of a part, as float32.
void CudaBackend::upload_rows(const WeightView& part, size_t first, size_t count, float* to) {
  const size_t inputs = columns_of(part), stride = CudaMatrix::stride(inputs);
  auto* const staged = reinterpret_cast<float*>(staging_.take(count * stride * sizeof(float)));
  pool_.run(count, [&](size_t i) {
    const FlushDenormals flush;
    float* const row = staged + i * stride;
    dequantize_row(part, first + i, {row, inputs});
    std::fill(row + inputs, row + stride, 0.0F);
  });
  copy_up(to, staged, count * stride);
}

Result<std::unique_ptr<Matrix>> CudaBackend::make_f32(const WeightParts& whole,
                                                      const Consumed& consumed) {
  constexpr size_t kStagedBytes = size_t{16} << 20;
  const size_t stride = CudaMatrix::stride(whole.inputs());
  SKEIN_ASSIGN(Buffer memory, allocate(whole.outputs() * stride * sizeof(float)));
  float* to = raw(memory.floats());
  const size_t at_once = std::max<size_t>(1, kStagedBytes / (stride * sizeof(float)));
  if (seed_) fill_floats(to, whole.outputs() * stride, ++*seed_, stream_);
  for (const WeightView& part : whole.parts()) {
    const size_t rows = rows_of(part);
    if (seed_) {
      consume_rows(part, 0, rows, consumed);
      continue;
    }
    for (size_t first = 0; first < rows; first += at_once) {
      const size_t count = std::min(at_once, rows - first);
      upload_rows(part, first, count, to);
      to += count * stride;
      consume_rows(part, first, count, consumed);
    }
  }
  return std::unique_ptr<Matrix>(
      std::make_unique<CudaMatrix>(whole.outputs(), whole.inputs(), std::move(memory)));
}

Result<std::unique_ptr<Rope>> CudaBackend::make_rope(std::span<const float> frequencies,
                                                     float magnitude) {
  SKEIN_ASSIGN(Buffer memory, allocate(frequencies.size_bytes()));
  write(memory.floats(), frequencies);
  return std::unique_ptr<Rope>(
      std::make_unique<CudaRope>(frequencies.size(), magnitude, std::move(memory)));
}

Result<std::unique_ptr<Routes>> CudaBackend::make_routes(size_t rows, uint32_t used) {
  SKEIN_ASSIGN(Buffer memory, allocate(rows * used * (sizeof(float) + sizeof(uint32_t))));
  return std::unique_ptr<Routes>(std::make_unique<CudaRoutes>(rows, used, std::move(memory)));
}

Result<std::unique_ptr<KvCache>> CudaBackend::make_kv(const KvSpec& spec, uint32_t blocks) {
  if (blocks == 0) return invalid_argument("a KV cache of 0 blocks, it must have 1 at least");
  const bool in_pairs = CudaKv::is_in_pairs(spec, f16_.has_value());
  if (const uint32_t most = in_pairs ? kMostTensorHeadDim : kMostHeadDim; spec.head_dim > most) {
    return unimplemented("heads of {} dimensions, attention on the device takes {} at most",
                         spec.head_dim, most);
  }
  const uint64_t each = kv_block_bytes(spec);
  auto memory = each > SIZE_MAX / 2 / blocks ? resource_exhausted("it leaves the address space")
                                             : allocate(each * blocks);
  if (!memory.ok()) {
    return Status(memory.status().code(),
                  fmt::format("a KV cache of {} blocks of {} bytes each: {}", blocks, each,
                              memory.message()));
  }
  return std::unique_ptr<KvCache>(
      std::make_unique<CudaKv>(spec, in_pairs, blocks, ++caches_made_, std::move(*memory)));
}

}  // namespace cuda

std::string_view cuda_architectures() {
  return "sm_90a";
}

namespace {

Result<std::unique_ptr<Backend>> make_with(const BackendOptions& options, ComputePool& pool,
                                           std::optional<uint64_t> seed) {
  SKEIN_ASSIGN(const cuda::Device device, cuda::find_device(options.device));
  const bool has_f16 = options.precision != Precision::kF32;
  if (has_f16 && !device.is_hopper) {
    return unimplemented(
        "CUDA: device {} is {}; products in 16 bits are defined as sm_90 computes them: use "
        "--precision f32",
        device.number, device.name);
  }
  SKEIN_ASSIGN(const CpuIsa isa, choose_isa(options.isa));
  SKEIN_ASSIGN(cuda::DeviceSeat seat, cuda::DeviceSeat::take(device.context));
  if (const cudaError_t error = cudaSetDevice(device.number); error != cudaSuccess) {
    return unimplemented("CUDA: device {}: {}", device.number, cudaGetErrorString(error));
  }
  return std::unique_ptr<Backend>(std::make_unique<cuda::CudaBackend>(
      device, std::move(seat), has_f16, pool, cpu::kernels_for(isa), seed));
}

}  // namespace

Result<std::unique_ptr<Backend>> make_cuda(const BackendOptions& options, ComputePool& pool) {
  return make_with(options, pool, {});
}

Result<std::unique_ptr<Backend>> make_seeded_cuda(const BackendOptions& options, ComputePool& pool,
                                                  uint64_t seed) {
  return make_with(options, pool, seed);
}

}  // namespace skein
