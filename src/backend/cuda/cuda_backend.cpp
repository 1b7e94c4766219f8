// The CUDA backend: one device, one stream. Products are float32 or F16, as the precision says, all
// else is float32. Ops launch kernels and return; what waits is read().
#include <algorithm>
#include <cuda_runtime_api.h>
#include <fmt/format.h>
#include <optional>
#include <string>
#include <utility>

#include "backend/check_shapes.h"
#include "backend/cpu/kernels_for.h"
#include "backend/cuda/cuda_device.h"
#include "backend/cuda/device_memory.h"
#include "backend/cuda/device_objects.h"
#include "backend/cuda/device_step.h"
#include "backend/cuda/kernels.h"
#include "backend/cuda/step_graphs.h"
#include "backend/cuda/tensor_attention.h"
#include "backend/cuda/tile_products.h"
#include "backend/host/flush_denormals.h"
#include "backend/registry.h"
#include "backend/weight_parts.h"

namespace skein {
namespace cuda {
namespace {

DeviceRows of(const Rows& rows) {
  return {raw(rows.data), static_cast<uint32_t>(rows.rows), static_cast<uint32_t>(rows.width),
          rows.stride};
}

DeviceNorm of(const NormParams& params) {
  return {params.kind,      params.epsilon, raw(params.weight),
          raw(params.bias), params.parts,   params.weight_per_part};
}

// As many spans at a time as a quarter of a gibibyte has room for.
SpanBatch batch_of(uint32_t spans, size_t rows, uint32_t heads, const DeviceKv& cache) {
  constexpr uint64_t kMostFloats = uint64_t{1} << 26;
  const uint64_t each = std::max<uint64_t>(1, rows * heads * (cache.head_dim + 2));
  return {spans, static_cast<uint32_t>(std::clamp<uint64_t>(kMostFloats / each, 1, spans))};
}

cudaStream_t make_stream() {
  cudaStream_t stream = nullptr;
  check(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking), "cudaStreamCreate");
  return stream;
}

// A launch that could not be is known at once; what goes wrong on the device is known later.
void check_launch(const char* op) {
  check(cudaPeekAtLastError(), op);
}

class CudaBackend final : public Backend {
 public:
  CudaBackend(const Device& device, bool has_f16, ComputePool& pool,
              const cpu::KernelTable& host_kernels)
      : device_(device),
        pool_(pool),
        host_kernels_(host_kernels),
        stream_(make_stream()),
        graphs_(stream_) {
    if (has_f16) f16_.emplace(device.processors, stream_);
  }
  ~CudaBackend() override {
    static_cast<void>(cudaStreamSynchronize(stream_));
    static_cast<void>(cudaStreamDestroy(stream_));
  }

  std::string_view name() const override { return device_.name; }

  uint64_t available() const override {
    use();
    size_t left = 0, total = 0;
    check(cudaMemGetInfo(&left, &total), "cudaMemGetInfo");
    return left;
  }
  Result<Buffer> allocate(size_t bytes) override {
    use();
    return allocate_device(bytes);
  }
  void write(Floats to, std::span<const float> from) override {
    use();
    copy_up(raw(to), from.data(), from.size());
  }
  HostRows read(Rows rows) override;
  VocabularyScan scan() const override { return VocabularyScan(host_kernels_); }

  Result<std::unique_ptr<Matrix>> make_matrix(std::span<const WeightView> parts,
                                              const Consumed& consumed) override {
    use();
    SKEIN_ASSIGN(const WeightParts whole, WeightParts::of(parts));
    return f16_ ? f16_->make_matrix(whole, consumed, pool_) : make_f32(whole, consumed);
  }
  Result<std::unique_ptr<Matrix>> make_table(std::span<const WeightView> parts) override {
    SKEIN_ASSIGN(const WeightParts whole, WeightParts::of(parts));
    return make_f32(whole, [](std::span<const std::byte>) {});
  }
  uint64_t matrix_bytes(const WeightView& part) const override {
    if (f16_) return TileProducts::matrix_bytes(part);
    return rows_of(part) * CudaMatrix::stride(columns_of(part)) * sizeof(float);
  }
  Status reserve(uint64_t bytes) override {
    const uint64_t left = available();
    if (bytes <= left) return ok_status();
    return resource_exhausted("weights take {} bytes of device memory in {}, {} are left", bytes,
                              f16_ ? "float16" : "float32", left);
  }

  Result<std::unique_ptr<Rope>> make_rope(std::span<const float> frequencies,
                                          float magnitude) override;
  Result<std::unique_ptr<Routes>> make_routes(size_t rows, uint32_t used) override;
  Result<std::unique_ptr<KvCache>> make_kv(const KvSpec& spec, uint32_t blocks) override;
  uint64_t kv_block_bytes(const KvSpec& spec) const override {
    return CudaKv::block_bytes(spec, f16_.has_value());
  }

  Step begin(std::span<const TokenId> tokens, std::span<const Sequence> sequences,
             std::span<const uint32_t> logit_rows) override {
    use();
    return step_.begin(tokens, sequences, logit_rows, stream_);
  }
  void run(const Step& step, uint64_t key, FunctionRef<void()> ops) override {
    // More rows keep the device busy for longer than they take to ask for.
    constexpr size_t kMostRows = 256;
    if (step.rows > kMostRows) return ops();
    const uint64_t moves = step_.moves() + changed_.moves() + spans_.moves();
    graphs_.run({key, step.rows, step.logits, step_.spans()}, moves + (f16_ ? f16_->moves() : 0),
                ops);
  }

  void embed(const Matrix& table, const Step& step, float scale, Rows out) override {
    check_embed(table, device_step(step).host().tokens, out);
    cuda::embed(device_matrix(table), device_step(step).view(), scale, of(out), stream_);
    check_launch("embed");
  }
  void norm(Rows x, const NormParams& params, Rows out) override {
    check_norm(x, params, out);
    cuda::norm(of(x), of(params), of(out), stream_);
    check_launch("norm");
  }
  void linear(const LinearInput& in, const Matrix& matrix, Floats bias, Rows out) override;
  void linear_f16(const LinearInput& in, const Matrix& matrix, Floats bias, Rows out);
  void add(Rows x, Rows delta, float scale) override {
    check_add(x, delta);
    cuda::add(of(x), of(delta), scale, stream_);
    check_launch("add");
  }
  void activate(Rows x, const ActivationParams& params, Rows out) override {
    check_activate(x, params, out);
    cuda::activate(of(x), params, of(out), stream_);
    check_launch("activate");
  }
  void rope_angles(const Step& step, const Rope& rope, Rows out) override {
    check_rope_angles(step, rope, out);
    cuda::rope_angles(device_step(step).view(), cuda_rope(rope).frequencies(),
                      cuda_rope(rope).magnitude(), of(out), stream_);
    check_launch("rope_angles");
  }
  void attend(Rows q, Rows k, Rows v, const QkTransform& transform, const Step& step,
              KvCache& cache, uint32_t layer, const AttentionParams& params, Rows out) override;
  void route(Rows x, RouterKind kind, Routes& routes) override {
    check_route(x, routes);
    cuda::route(of(x), kind, device_routes(routes), stream_);
    check_launch("route");
  }
  void expert_linear(Rows x, std::span<const std::unique_ptr<Matrix>> experts, Floats biases,
                     const Routes& routes, Rows out) override;
  void combine(Rows x, const Routes& routes, Rows out) override {
    check_combine(x, routes, out);
    cuda::combine(of(x), device_routes(routes), of(out), stream_);
    check_launch("combine");
  }
  void gather(Rows x, const Step& step, Rows out) override {
    check_gather(x, device_step(step).host().logit_rows, out);
    cuda::gather(of(x), device_step(step).view(), of(out), stream_);
    check_launch("gather");
  }
  void finish_logits(Rows x, float scale, float softcap) override {
    if (scale == 1.0F && softcap == 0.0F) return;
    cuda::finish_logits(of(x), scale, softcap, stream_);
    check_launch("finish_logits");
  }

 private:
  // CUDA has a current device for each thread, and any thread may call.
  void use() const { check(cudaSetDevice(device_.number), "cudaSetDevice"); }
  // Returns when `from` may go.
  void copy_up(float* to, const float* from, size_t floats) {
    if (floats == 0) return;
    check(cudaMemcpyAsync(to, from, floats * sizeof(float), cudaMemcpyHostToDevice, stream_),
          "upload");
    check(cudaStreamSynchronize(stream_), "upload");
  }
  Result<std::unique_ptr<Matrix>> make_f32(const WeightParts& whole, const Consumed& consumed);
  void upload_rows(const WeightView& part, size_t first, size_t count, float* to);

  const Device device_;
  ComputePool& pool_;
  const cpu::KernelTable& host_kernels_;
  const cudaStream_t stream_;
  StepGraphs graphs_;
  std::optional<TileProducts> f16_;  // none in float32
  DeviceStep step_;
  Scratch changed_;  // rows on their way into a product
  Scratch spans_;    // of attention
  Pinned read_;
  Pinned staging_;  // weights on their way to the device
  uint64_t caches_made_ = 0;
};

HostRows CudaBackend::read(Rows rows) {
  use();
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
  for (const WeightView& part : whole.parts()) {
    const size_t rows = rows_of(part);
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

void CudaBackend::linear(const LinearInput& in, const Matrix& matrix, Floats bias, Rows out) {
  check_linear(in, matrix, out);
  if (f16_) return linear_f16(in, matrix, bias, out);
  if (in.delta.data) cuda::add(of(in.x), of(in.delta), in.delta_scale, stream_);
  DeviceRows x = of(in.x);
  if (in.norm != nullptr || in.activation != nullptr) {
    const size_t width = in.width();
    x = {changed_.take(in.x.rows * width), x.rows, static_cast<uint32_t>(width), width};
    if (in.norm != nullptr) cuda::norm(of(in.x), of(*in.norm), x, stream_);
    if (in.activation != nullptr) cuda::activate(of(in.x), *in.activation, x, stream_);
  }
  cuda::multiply(x, device_matrix(matrix), raw(bias), of(out), stream_);
  check_launch("linear");
}

void CudaBackend::linear_f16(const LinearInput& in, const Matrix& matrix, Floats bias, Rows out) {
  DeviceInput input;
  input.x = of(in.x);
  input.width = static_cast<uint32_t>(in.width());
  input.activation = in.activation;
  DeviceNorm norm;
  if (in.norm != nullptr) {
    norm = of(*in.norm);
    input.norm = &norm;
  }
  if (in.delta.data && in.activation != nullptr) {
    cuda::add(of(in.x), of(in.delta), in.delta_scale, stream_);
  } else if (in.delta.data) {
    input.delta = of(in.delta);
    input.delta_scale = in.delta_scale;
  }
  f16_->linear(input, matrix, raw(bias), of(out));
  check_launch("linear");
}

void CudaBackend::attend(Rows q, Rows k, Rows v, const QkTransform& transform, const Step& step,
                         KvCache& kv, uint32_t layer, const AttentionParams& params, Rows out) {
  check_attend(q, k, v, transform, step, kv, params, out);
  const StepView& view = device_step(step).view();
  const DeviceKv cache = device_kv(kv, layer);
  if (transform.q_norm != nullptr) cuda::norm(of(q), of(*transform.q_norm), of(q), stream_);
  if (transform.k_norm != nullptr) cuda::norm(of(k), of(*transform.k_norm), of(k), stream_);
  const DeviceRows angles = transform.angles.data ? of(transform.angles) : DeviceRows();
  turn_and_store(of(q), of(k), of(v), transform.layout, angles, view, cache, stream_);
  const DeviceAttention attention{params.heads, params.scale, params.softcap, params.window,
                                  raw(params.sinks)};
  if (cache.in_pairs) {
    const SpanBatch batch = batch_of(device_step(step).spans(), q.rows, params.heads, cache);
    float* const memory = spans_.take(SpanSums::floats(static_cast<uint32_t>(q.rows), params.heads,
                                                       batch.at_once, cache.head_dim));
    attend_on_tensor_cores(of(q), view, cache, attention, batch, memory, of(out), stream_);
  } else {
    cuda::attend(of(q), view, cache, attention, of(out), stream_);
  }
  check_launch("attend");
}

void CudaBackend::expert_linear(Rows x, std::span<const std::unique_ptr<Matrix>> experts,
                                Floats biases, const Routes& routes, Rows out) {
  check_expert_linear(x, experts, routes, out);
  if (f16_) {
    if (out.rows > 0) {
      f16_->expert_linear(of(x), experts, raw(biases), device_routes(routes), of(out));
    }
    return check_launch("expert_linear");
  }
  for (size_t first = 0; first < experts.size(); first += ExpertTable::kMost) {
    ExpertTable table;
    table.first = static_cast<uint32_t>(first);
    table.count =
        static_cast<uint32_t>(std::min<size_t>(ExpertTable::kMost, experts.size() - first));
    for (uint32_t e = 0; e < table.count; ++e) {
      table.weights[e] = device_matrix(*experts[first + e]).weights;
    }
    cuda::multiply_experts(of(x), table, device_matrix(*experts[first]), raw(biases),
                           device_routes(routes), of(out), stream_);
  }
  check_launch("expert_linear");
}

}  // namespace
}  // namespace cuda

std::string_view cuda_architectures() {
  return "sm_90a";
}

Result<std::unique_ptr<Backend>> make_cuda(const BackendOptions& options, ComputePool& pool) {
  SKEIN_ASSIGN(const cuda::Device device, cuda::find_device(options.device));
  const bool has_f16 = options.precision != Precision::kF32;
  if (has_f16 && !device.is_hopper) {
    return unimplemented(
        "CUDA: device {} is {}; products in 16 bits are defined as sm_90 computes them: use "
        "--precision f32",
        device.number, device.name);
  }
  SKEIN_ASSIGN(const CpuIsa isa, choose_isa(options.isa));
  if (const cudaError_t error = cudaSetDevice(device.number); error != cudaSuccess) {
    return unimplemented("CUDA: device {}: {}", device.number, cudaGetErrorString(error));
  }
  return std::unique_ptr<Backend>(
      std::make_unique<cuda::CudaBackend>(device, has_f16, pool, cpu::kernels_for(isa)));
}

}  // namespace skein
