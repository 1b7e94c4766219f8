// The ops that are more than a launch, and what one of them leaves to the next.
#include <algorithm>

#include "backend/cuda/cuda_backend.h"

namespace skein::cuda {
namespace {

// As many spans at a time as a quarter of a gibibyte has room for.
// Few rows take what there is in turns: those that begin late have fetched nothing ahead.
SpanBatch batch_of(uint32_t spans, size_t rows, uint32_t heads, const DeviceKv& cache,
                   uint32_t processors) {
  constexpr uint64_t kMostFloats = uint64_t{1} << 26;
  const uint64_t each = std::max<uint64_t>(1, rows * heads * (cache.head_dim + 2));
  return {spans, static_cast<uint32_t>(std::clamp<uint64_t>(kMostFloats / each, 1, spans)),
          rows <= kMostRecordedRows ? processors : 0};
}

bool are_same(const DeviceRows& a, const DeviceRows& b) {
  return a.data == b.data && a.rows == b.rows && a.width == b.width && a.stride == b.stride;
}

}  // namespace

// The rows that were left for the next op, where that one cannot complete them on the way.
void CudaBackend::finish() {
  if (unfinished_.rows.data == nullptr) return;
  const Unfinished left = std::exchange(unfinished_, {});
  if (left.attention) {
    attend_on_tensor_cores(*left.attention, {}, stream_);
  } else if (left.merge) {
    merge_spans(*left.merge, stream_);
  } else {
    add_segments(left.sums, left.rows, stream_);
  }
  check_launch("finish");
}

// The rows as they are multiplied.
DeviceRows CudaBackend::prepared(const LinearInput& in) {
  DeviceRows x = of(in.x);
  if (in.delta.data) cuda::add(x, of(in.delta), in.delta_scale, stream_);
  if (in.norm == nullptr && in.activation == nullptr) return x;
  const size_t width = in.width();
  x = {changed_.take(in.x.rows * width), x.rows, static_cast<uint32_t>(width), width};
  if (in.norm != nullptr) cuda::norm(of(in.x), of(*in.norm), x, stream_);
  if (in.activation != nullptr) cuda::activate(of(in.x), *in.activation, x, stream_);
  return x;
}

void CudaBackend::linear(const LinearInput& in, const Matrix& matrix, Floats bias, Rows out) {
  check_linear(in, matrix, out);
  if (f16_) return linear_f16(in, matrix, bias, out);
  finish();
  cuda::multiply(prepared(in), device_matrix(matrix), raw(bias), of(out), stream_);
  check_launch("linear");
}

void CudaBackend::linear_f16(const LinearInput& in, const Matrix& matrix, Floats bias, Rows out) {
  DeviceInput input;
  input.x = of(in.x);
  input.width = static_cast<uint32_t>(in.width());
  input.activation = in.activation;
  if (in.delta.data) input.delta = of(in.delta);
  input.delta_scale = in.delta_scale;
  DeviceNorm norm;
  if (in.norm != nullptr) {
    norm = of(*in.norm);
    input.norm = &norm;
  }
  const bool adds_first = in.delta.data && in.activation != nullptr;
  const bool at_once = !adds_first && goes_at_once(input, device_tiles(matrix));
  const bool adds_on_the_way = at_once && in.norm != nullptr &&
                               unfinished_.sums.planes != nullptr &&
                               are_same(input.delta, unfinished_.rows);
  const bool merges_on_the_way = at_once && (unfinished_.attention || unfinished_.merge) &&
                                 are_same(input.x, unfinished_.rows) && in.norm == nullptr &&
                                 in.activation == nullptr && !in.delta.data;
  if (!adds_on_the_way && !merges_on_the_way) finish();
  const Unfinished left = std::exchange(unfinished_, {});
  if (adds_on_the_way) input.delta_sums = left.sums;
  if (left.attention) input.attention = &*left.attention;
  if (left.merge) input.merge = &*left.merge;
  if (!at_once) input = {.x = prepared(in), .width = input.width};
  const SegmentSums sums = f16_->linear(input, matrix, raw(bias), of(out));
  if (sums.planes != nullptr) unfinished_ = {of(out), sums, {}, {}};
  if (!defers_) finish();
  check_launch("linear");
}

void CudaBackend::attend(Rows q, Rows k, Rows v, const QkTransform& transform, const Step& step,
                         KvCache& kv, uint32_t layer, const AttentionParams& params, Rows out) {
  check_attend(q, k, v, transform, step, kv, params, out);
  const StepView& view = device_step(step).view();
  const DeviceKv cache = device_kv(kv, layer);
  const auto q_output = unfinished_.first_output(of(q)), k_output = unfinished_.first_output(of(k)),
             v_output = unfinished_.first_output(of(v));
  DeviceHeads heads{{of(q), of(k), of(v)}};
  if (cache.in_pairs && unfinished_.sums.planes != nullptr && transform.q_norm == nullptr &&
      transform.k_norm == nullptr && q_output && k_output && v_output) {
    heads = {{of(q), of(k), of(v)},
             std::exchange(unfinished_, {}).sums,
             {*q_output, *k_output, *v_output}};
  }
  finish();
  if (transform.q_norm != nullptr) cuda::norm(of(q), of(*transform.q_norm), of(q), stream_);
  if (transform.k_norm != nullptr) cuda::norm(of(k), of(*transform.k_norm), of(k), stream_);
  heads.layout = transform.layout;
  if (transform.angles.data) heads.angles = of(transform.angles);
  const DeviceAttention attention{params.heads, params.scale, params.softcap, params.window,
                                  raw(params.sinks)};
  if (!cache.in_pairs) {
    turn_and_store(of(q), of(k), of(v), heads.layout, heads.angles, view, cache, stream_);
    cuda::attend(of(q), view, cache, attention, of(out), stream_);
  } else if (q.rows > 0) {
    attend_f16({heads, view, cache, attention, {}, nullptr, nullptr, of(out)}, device_step(step));
  }
  check_launch("attend");
}

// Whole rows wait for the op that comes next, which may want them as tiles.
void CudaBackend::attend_f16(AttentionWork work, const DeviceStep& step) {
  const uint32_t rows = work.out.rows, heads = work.attention.heads;
  work.batch = batch_of(step.spans(), rows, heads, work.cache, device_.processors);
  work.batch.is_whole =
      step.has_single_rows() && rows <= kMostRecordedRows && can_attend_whole_rows(work);
  if (rows > kMostRecordedRows && can_attend_prompts(work)) {
    work.batch.has_prompts = step.has_prompts(true);
    work.batch.has_others = step.has_prompts(false);
  }
  if (work.batch.is_whole) {
    constexpr size_t kMarks = 2 * kMostRecordedRows;
    const bool are_there = marks_.holds(kMarks);
    work.marks = reinterpret_cast<uint32_t*>(marks_.take(kMarks));
    if (!are_there) {
      check(cudaMemsetAsync(work.marks, 0, kMarks * sizeof(uint32_t), stream_), "attend");
    }
    unfinished_ = {work.out, {}, work, {}};
  } else {
    prepare_heads(work.heads, work.step, work.cache, stream_);
    work.memory =
        spans_.take(SpanSums::floats(rows, heads, work.batch.at_once, work.cache.head_dim));
    unfinished_ = {};
    if (const auto merge = attend_on_tensor_cores(work, {}, stream_)) {
      unfinished_ = {work.out, {}, {}, merge};
    }
  }
  if (!defers_) finish();
}

bool CudaBackend::peaks(Rows rows, std::span<VocabularyScan::Argmax> out) {
  if (!f16_) return false;
  use();
  finish();
  if (peaks_ == nullptr ||
      !static_cast<const CudaDrawQueue&>(*peaks_).holds(rows.rows, rows.width)) {
    auto made = CudaDrawQueue::make(rows.rows, rows.width, 1, stream_);
    if (!made.ok()) throw CudaError(made.message());
    peaks_ = std::move(*made);
  }
  peaks_->find(rows, {});
  peaks_->take(out);
  return true;
}

void CudaBackend::expert_linear(Rows x, std::span<const std::unique_ptr<Matrix>> experts,
                                Floats biases, const Routes& routes, Rows out) {
  check_expert_linear(x, experts, routes, out);
  finish();
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

}  // namespace skein::cuda
