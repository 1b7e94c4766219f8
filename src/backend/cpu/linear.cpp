#include "backend/cpu/linear.h"

#include <algorithm>

namespace skein::cpu {
namespace {

// Weight rows that become floats together: few enough for the L1 cache when they are used once or
// twice, more when many rows of activations come by, so that those are read less often.
constexpr size_t kSmallPanel = kPanelRows;
constexpr size_t kLargePanel = 2 * kPanelRows;
constexpr size_t kManyRows = 8;
// Outputs that a worker takes at a time.
constexpr size_t kChunk = 2 * kLargePanel;

}  // namespace

Status Linear::prepare(const CpuMatrix& matrix) {
  return panels_.reserve(kLargePanel * matrix.panel_stride());
}

void Linear::run_chunk(const Group& group, size_t first_output, size_t outputs,
                       float* panel) const {
  Multiply args{};
  args.x = x_.data() + group.begin;
  args.out = out_.data() + group.begin;
  args.count = group.end - group.begin;
  args.inputs = group.matrix->inputs();
  args.weights = panel;
  args.weight_stride = group.matrix->panel_stride();
  const size_t panel_rows = args.count > kManyRows ? kLargePanel : kSmallPanel;
  for (size_t n = first_output; n < first_output + outputs; n += panel_rows) {
    args.weight_rows = std::min(panel_rows, first_output + outputs - n);
    args.first_output = n;
    args.bias = group.bias == nullptr ? nullptr : group.bias + n;
    group.matrix->fill_panel(n, args.weight_rows, panel);
    kernels_.multiply(args);
  }
}

void Linear::run_groups(size_t outputs, size_t inputs) {
  const size_t chunks = (outputs + kChunk - 1) / kChunk;
  workers_.run(groups_.size() * chunks, x_.size() * outputs * inputs,
               [&](size_t slot, size_t item) {
                 const size_t first = item % chunks * kChunk;
                 run_chunk(groups_[item / chunks], first, std::min(kChunk, outputs - first),
                           panels_.slot(slot));
               });
}

void Linear::multiply(Rows x, const CpuMatrix& matrix, const float* bias, Rows out) {
  if (x.rows == 0) return;
  x_.resize(x.rows);
  out_.resize(x.rows);
  for (size_t i = 0; i < x.rows; ++i) {
    x_[i] = x.row(i);
    out_[i] = out.row(i);
  }
  groups_.assign(1, {&matrix, bias, 0, x.rows});
  run_groups(matrix.outputs(), matrix.inputs());
}

void Linear::multiply_experts(Rows x, std::span<const std::unique_ptr<Matrix>> experts,
                              const float* biases, const Routes& routes, Rows out) {
  if (out.rows == 0) return;
  x_.resize(out.rows);
  out_.resize(out.rows);
  groups_.clear();
  // A counting sort of the entries by expert.
  expert_begin_.assign(experts.size() + 1, 0);
  for (const uint32_t expert : routes.experts) ++expert_begin_[expert + 1];
  for (size_t e = 0; e < experts.size(); ++e) {
    const size_t begin = expert_begin_[e], end = begin + expert_begin_[e + 1];
    expert_begin_[e + 1] = end;
    if (begin == end) continue;
    groups_.push_back({static_cast<const CpuMatrix*>(experts[e].get()),
                       biases == nullptr ? nullptr : biases + e * out.width, begin, end});
  }
  for (size_t i = 0; i < out.rows; ++i) {
    const size_t entry = expert_begin_[routes.experts[i]]++;
    x_[entry] = x.row(x.rows == out.rows ? i : i / routes.used);
    out_[entry] = out.row(i);
  }
  run_groups(out.width, x.width);
}

}  // namespace skein::cpu
