// The CUDA backend: one device, one stream. Products are float32 or F16, as the precision says, all
// else is float32. Ops launch kernels and return; what waits is read() and peaks().
#pragma once

#include <cuda_runtime_api.h>
#include <fmt/format.h>
#include <optional>
#include <span>
#include <string_view>
#include <utility>

#include "backend/backend.h"
#include "backend/check_shapes.h"
#include "backend/cpu/kernels_for.h"
#include "backend/cuda/cuda_device.h"
#include "backend/cuda/device_memory.h"
#include "backend/cuda/device_objects.h"
#include "backend/cuda/device_step.h"
#include "backend/cuda/draw_queue.h"
#include "backend/cuda/kernels.h"
#include "backend/cuda/step_graphs.h"
#include "backend/cuda/tensor_attention.h"
#include "backend/cuda/tile_products.h"
#include "backend/packed_tiles.h"
#include "backend/weight_parts.h"

namespace skein::cuda {

// More rows keep the device busy for longer than they take to ask for.
inline constexpr size_t kMostRecordedRows = 256;

inline DeviceRows of(const Rows& rows) {
  return {raw(rows.data), static_cast<uint32_t>(rows.rows), static_cast<uint32_t>(rows.width),
          rows.stride};
}

inline DeviceNorm of(const NormParams& params) {
  return {params.kind,      params.epsilon, raw(params.weight),
          raw(params.bias), params.parts,   params.weight_per_part};
}

// A launch that could not be is known at once; what goes wrong on the device is known later.
inline void check_launch(const char* op) {
  check(cudaPeekAtLastError(), op);
}

// Rows that the next op can complete on the way, of a product or of attention.
struct Unfinished {
  DeviceRows rows{};   // no data: there are none
  SegmentSums sums{};  // where it has planes they are a product
  std::optional<AttentionWork> attention{};
  std::optional<MergeParams> merge{};  // attention that has begun

  // Where columns of these rows begin among the outputs, if they are such.
  std::optional<uint32_t> first_output(const DeviceRows& columns) const {
    if (rows.data == nullptr || columns.rows != rows.rows || columns.stride != rows.stride ||
        columns.data < rows.data || columns.data + columns.width > rows.data + rows.width) {
      return std::nullopt;
    }
    return static_cast<uint32_t>(columns.data - rows.data);
  }
};

class CudaBackend final : public Backend {
 public:
  // `seed`: of matrices and tables, whatever their views hold.
  CudaBackend(const Device& device, DeviceSeat seat, bool has_f16, ComputePool& pool,
              const cpu::KernelTable& host_kernels, std::optional<uint64_t> seed);
  ~CudaBackend() override;

  std::string_view name() const override { return device_.name; }
  std::shared_ptr<const ComputeDevice> device() const override { return device_.context; }

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
    finish();
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
  uint64_t matrix_bytes(std::span<const WeightView> parts) const override {
    return f16_ ? tiled_bytes(parts) : table_bytes(parts);
  }
  uint64_t table_bytes(std::span<const WeightView> parts) const override {
    uint64_t bytes = 0;
    for (const WeightView& part : parts) {
      bytes += rows_of(part) * CudaMatrix::stride(columns_of(part)) * sizeof(float);
    }
    return bytes;
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
             std::span<const uint32_t> logit_rows, const DrawQueue* before) override {
    use();
    finish();
    const auto* const queue = static_cast<const CudaDrawQueue*>(before);
    const DevicePeak* const peaks = queue == nullptr ? nullptr : queue->latest();
    const Step step = step_.begin(tokens, sequences, logit_rows, peaks, stream_);
    if (queue != nullptr) queue->note_step();
    return step;
  }
  void run(const Step& step, uint64_t key, FunctionRef<void()> ops) override;

  void embed(const Matrix& table, const Step& step, float scale, Rows out) override {
    finish();
    check_embed(table, device_step(step).host().tokens, out, device_step(step).awaits());
    cuda::embed(device_matrix(table), device_step(step).view(), scale, of(out), stream_);
    check_launch("embed");
  }
  void norm(Rows x, const NormParams& params, Rows out) override {
    finish();
    check_norm(x, params, out);
    cuda::norm(of(x), of(params), of(out), stream_);
    check_launch("norm");
  }
  void linear(const LinearInput& in, const Matrix& matrix, Floats bias, Rows out) override;
  bool peaks(Rows rows, std::span<VocabularyScan::Argmax> out) override;
  Result<std::unique_ptr<DrawQueue>> make_draw_queue(size_t rows, size_t width,
                                                     uint32_t searches) override {
    if (!f16_) return std::unique_ptr<DrawQueue>();
    use();
    return CudaDrawQueue::make(rows, width, searches, stream_);
  }
  void add(Rows x, Rows delta, float scale) override {
    finish();
    check_add(x, delta);
    cuda::add(of(x), of(delta), scale, stream_);
    check_launch("add");
  }
  void activate(Rows x, const ActivationParams& params, Rows out) override {
    finish();
    check_activate(x, params, out);
    cuda::activate(of(x), params, of(out), stream_);
    check_launch("activate");
  }
  void rope_angles(const Step& step, const Rope& rope, Rows out) override {
    finish();
    check_rope_angles(step, rope, out);
    cuda::rope_angles(device_step(step).view(), cuda_rope(rope).frequencies(),
                      cuda_rope(rope).magnitude(), of(out), stream_);
    check_launch("rope_angles");
  }
  void attend(Rows q, Rows k, Rows v, const QkTransform& transform, const Step& step,
              KvCache& cache, uint32_t layer, const AttentionParams& params, Rows out) override;
  void route(Rows x, RouterKind kind, Routes& routes) override {
    finish();
    check_route(x, routes);
    cuda::route(of(x), kind, device_routes(routes), stream_);
    check_launch("route");
  }
  void expert_linear(Rows x, std::span<const std::unique_ptr<Matrix>> experts, Floats biases,
                     const Routes& routes, Rows out) override;
  void combine(Rows x, const Routes& routes, Rows out) override {
    finish();
    check_combine(x, routes, out);
    cuda::combine(of(x), device_routes(routes), of(out), stream_);
    check_launch("combine");
  }
  void gather(Rows x, const Step& step, Rows out) override {
    finish();
    check_gather(x, device_step(step).host().logit_rows, out);
    cuda::gather(of(x), device_step(step).view(), of(out), stream_);
    check_launch("gather");
  }
  void finish_logits(Rows x, float scale, float softcap) override {
    finish();
    if (scale == 1.0F && softcap == 0.0F) return;
    cuda::finish_logits(of(x), scale, softcap, stream_);
    check_launch("finish_logits");
  }

 private:
  // CUDA has a current device for each thread, and any thread may call.
  void use() const {
    if (device_.context->is_lost()) {
      throw BackendLost(fmt::format("CUDA: device {} was lost", device_.number));
    }
    check(cudaSetDevice(device_.number), "cudaSetDevice");
  }
  // Returns when `from` may go.
  void copy_up(float* to, const float* from, size_t floats) {
    if (floats == 0) return;
    check(cudaMemcpyAsync(to, from, floats * sizeof(float), cudaMemcpyHostToDevice, stream_),
          "upload");
    check(cudaStreamSynchronize(stream_), "upload");
  }
  void finish();
  DeviceRows prepared(const LinearInput& in);
  void attend_f16(AttentionWork work, const DeviceStep& step);
  void linear_f16(const LinearInput& in, const Matrix& matrix, Floats bias, Rows out);
  Result<std::unique_ptr<Matrix>> make_f32(const WeightParts& whole, const Consumed& consumed);
  void upload_rows(const WeightView& part, size_t first, size_t count, float* to);

  const Device device_;
  const DeviceSeat seat_;  // before all that is on the device
  ComputePool& pool_;
  const cpu::KernelTable& host_kernels_;
  const cudaStream_t stream_;
  StepGraphs graphs_;
  std::optional<uint64_t> seed_;     // of what was filled last
  std::optional<TileProducts> f16_;  // none in float32
  DeviceStep step_;
  Scratch changed_;                   // rows on their way into a product
  Scratch spans_, marks_;             // of attention
  std::unique_ptr<DrawQueue> peaks_;  // of peaks()
  Unfinished unfinished_;
  bool defers_ = false;  // within run(): what an op leaves, the next one may complete
  Pinned read_;
  Pinned staging_;  // weights on their way to the device
  uint64_t caches_made_ = 0;
};

}  // namespace skein::cuda
