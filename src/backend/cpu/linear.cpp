#include "backend/cpu/linear.h"

#include <algorithm>

#include "backend/cpu/row_ops.h"

namespace skein::cpu {
namespace {

// Weight rows that become floats together: few enough for the L1 cache when they are used once or
// twice, more when many rows of activations come by, so that those are read less often.
constexpr size_t kSmallPanel = kPanelRows;
constexpr size_t kLargePanel = 2 * kPanelRows;
constexpr size_t kManyRows = 8;
// Outputs that a worker takes at a time.
constexpr size_t kChunk = 2 * kLargePanel;

// A worker takes of a packed matrix a run of row blocks at a time: few runs, so that memory is read
// in long stretches, but some more than there are workers, for the case that one is held up.
constexpr size_t kRunsPerSlot = 4;
// Runs are whole numbers of what the kernels take at once, of one row or of several.
constexpr size_t kBlocksOfOneRow = 4, kBlocksOfRows = 3;
// Row blocks whose weights the second-level cache still holds when their products are made.
constexpr size_t kBlocksNear = kBlocksOfOneRow * kBlocksOfRows;
// Activations come by again for every few row blocks: not from much further away than the
// second-level cache. Fewer at a time would have the weights come by more often.
constexpr size_t kCachedBytes = size_t{2} << 20;

// An element that is normed and quantized costs so many multiplications.
constexpr size_t kRowWork = 4;

constexpr size_t groups_of(size_t inputs) {
  return (inputs + arithmetic::kGroup - 1) / arithmetic::kGroup;
}

// Row blocks of a run: such that the slots are busy until the end, and then as many as possible.
size_t run_length(size_t blocks, size_t unit, size_t slots) {
  if (slots == 1) return blocks;
  size_t best = unit, shortest = SIZE_MAX;
  for (size_t length = unit; length == unit || length * kRunsPerSlot * slots <= blocks + length;
       length += unit) {
    const size_t runs = (blocks + length - 1) / length;
    const size_t time = (runs + slots - 1) / slots * length;
    if (time > shortest) continue;
    best = length;
    shortest = time;
  }
  return best;
}

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

// Decides where the activations of each entry go, and takes the memory.
void Linear::place_activations(size_t inputs) {
  const size_t groups = groups_of(inputs);
  quantizes_ = rounds_ = false;
  places_.clear();
  size_t tiles = 0;
  for (Group& group : groups_) {
    for (const PackedPart& part : group.matrix->packed()) {
      (part.product_type() == ProductType::kG32 ? quantizes_ : rounds_) = true;
    }
    group.first_tile = tiles;
    for (size_t i = 0; i < group.end - group.begin; ++i) {
      places_.push_back({tiles + i / kTileRows, i % kTileRows});
    }
    tiles = places_.back().tile + 1;
  }
  const size_t records = tiles * groups;
  if (quantizes_) {
    quantized_.ensure(records * sizeof(QuantizedRecord) / sizeof(float));
    outliers_.ensure(x_.size() * most_outliers(groups) * sizeof(Outlier) / sizeof(float));
    outlier_counts_.resize(x_.size());
  }
  if (!rounds_) return;
  rounded_.ensure(records * sizeof(Bf16Record) / sizeof(float));
  residuals_.ensure(x_.size() * most_residuals(groups) * sizeof(Bf16Residual) / sizeof(float));
  residual_counts_.resize(x_.size());
}

// Entry `entry` of x_ as input_ wants it: in place, or in `memory`.
const float* Linear::changed_row(size_t entry, float* memory) const {
  if (input_ == nullptr) return x_[entry];
  float* const x = row_of(input_->x, entry);
  const size_t width = input_->x.width;
  if (input_->delta.data) {
    kernels_.add_scaled(x, row_of(input_->delta, entry), input_->delta_scale, width);
  }
  if (input_->norm != nullptr) {
    norm_row(kernels_, *input_->norm, x, width, memory);
    return memory;
  }
  if (input_->activation == nullptr) return x;
  activate_row(kernels_, *input_->activation, x, input_->width(), memory);
  return memory;
}

void Linear::prepare_row(size_t entry, size_t inputs, const float* x) {
  const size_t groups = groups_of(inputs);
  const auto [tile, row] = places_[entry];
  if (quantizes_) {
    outlier_counts_[entry] = packed_kernels_.quantize(x, groups, row, quantized() + tile * groups,
                                                      outliers(entry, groups));
  }
  if (!rounds_) return;
  packed_kernels_.round(x, inputs, row, rounded() + tile * groups);
  residual_counts_[entry] = packed_kernels_.find_residuals(x, inputs, residuals(entry, groups));
}

void Linear::list_items() {
  size_t blocks = 0;
  for (const Group& group : groups_)
    blocks += (group.matrix->outputs() + kBlockRows - 1) / kBlockRows;
  const size_t unit = x_.size() == 1 ? kBlocksOfOneRow : kBlocksOfRows;
  const size_t length = run_length(blocks, unit, workers_.slots());
  items_.clear();
  for (const Group& group : groups_) {
    for (const PackedPart& part : group.matrix->packed()) {
      for (size_t first = 0; first < part.row_blocks(); first += length) {
        items_.push_back({&group, &part, first, std::min(length, part.row_blocks() - first)});
      }
    }
  }
}

template <class Record>
void Linear::run_item(const Item& item, size_t groups, const Record* records) const {
  const size_t rows = item.group->end - item.group->begin;
  const size_t step = std::max<size_t>(1, kCachedBytes / (groups * sizeof(Record))) * kTileRows;
  records += item.group->first_tile * groups;
  for (size_t row = 0; row < rows; row += step) {
    PackedMultiply<Record> args{};
    args.x = records + row / kTileRows * groups;
    args.rows = std::min(step, rows - row);
    args.out = out_.data() + item.group->begin + row;
    item.part->multiply(args, item.first, item.count, item.group->bias);
  }
}

// Where rows have outliers, these follow while the weights of a few row blocks are near.
void Linear::run_quantized_item(const Item& item, size_t groups) const {
  const auto counts =
      std::span(outlier_counts_).subspan(item.group->begin, item.group->end - item.group->begin);
  if (std::ranges::all_of(counts, [](size_t count) { return count == 0; })) {
    return run_item(item, groups, quantized());
  }
  Item few = item;
  for (size_t done = 0; done < item.count; done += few.count) {
    few.first = item.first + done;
    few.count = std::min(kBlocksNear, item.count - done);
    run_item(few, groups, quantized());
    for (size_t i = item.group->begin; i < item.group->end; ++i) {
      if (outlier_counts_[i] == 0) continue;
      item.part->add_outliers({outliers(i, groups), outlier_counts_[i]}, few.first, few.count,
                              out_[i]);
    }
  }
}

void Linear::run_item(const Item& item, size_t inputs) const {
  if (item.part->product_type() == ProductType::kG32) {
    run_quantized_item(item, groups_of(inputs));
  } else {
    run_item(item, groups_of(inputs), rounded());
    for (size_t i = item.group->begin; i < item.group->end; ++i) {
      if (residual_counts_[i] == 0) continue;
      item.part->add_residuals({residuals(i, groups_of(inputs)), residual_counts_[i]}, item.first,
                               item.count, out_[i]);
    }
  }
}

void Linear::run_packed(size_t outputs, size_t inputs) {
  place_activations(inputs);
  list_items();
  const auto prepare = [&](size_t slot, size_t entry) {
    prepare_row(entry, inputs, changed_row(entry, rows_.slot(slot)));
  };
  const auto multiply = [&](size_t, size_t i) { run_item(items_[i], inputs); };
  workers_.run({Phase(x_.size(), kRowWork * x_.size() * inputs, prepare),
                Phase(items_.size(), x_.size() * outputs * inputs, multiply)});
}

void Linear::run_groups(size_t outputs, size_t inputs) {
  if (!groups_[0].matrix->packed().empty()) return run_packed(outputs, inputs);
  const size_t chunks = (outputs + kChunk - 1) / kChunk;
  const auto prepare = [&](size_t, size_t entry) {
    x_[entry] = changed_row(entry, plain_.slot(0) + entry * inputs);
  };
  const auto multiply = [&](size_t slot, size_t item) {
    const size_t first = item % chunks * kChunk;
    run_chunk(groups_[item / chunks], first, std::min(kChunk, outputs - first), panels_.slot(slot));
  };
  if (input_ != nullptr) plain_.ensure(x_.size() * inputs);
  workers_.run({Phase(input_ == nullptr ? 0 : x_.size(), kRowWork * x_.size() * inputs, prepare),
                Phase(groups_.size() * chunks, x_.size() * outputs * inputs, multiply)});
}

void Linear::multiply(const LinearInput& in, const CpuMatrix& matrix, const float* bias, Rows out) {
  if (in.x.rows == 0) return;
  x_.resize(in.x.rows);
  out_.resize(in.x.rows);
  for (size_t i = 0; i < in.x.rows; ++i) {
    x_[i] = row_of(in.x, i);
    out_[i] = row_of(out, i);
  }
  groups_.assign(1, {&matrix, bias, 0, in.x.rows, 0});
  const bool changes = in.delta.data || in.norm != nullptr || in.activation != nullptr;
  input_ = changes ? &in : nullptr;
  rows_.ensure(matrix.inputs());
  run_groups(matrix.outputs(), matrix.inputs());
}

void Linear::multiply_experts(Rows x, std::span<const std::unique_ptr<Matrix>> experts,
                              const float* biases, const HostRoutes& routes, Rows out) {
  if (out.rows == 0) return;
  input_ = nullptr;
  x_.resize(out.rows);
  out_.resize(out.rows);
  groups_.clear();
  // A counting sort of the entries by expert.
  expert_begin_.assign(experts.size() + 1, 0);
  const std::span<const uint32_t> chosen = std::span(routes.experts).first(out.rows);
  for (const uint32_t expert : chosen) {
    SKEIN_CHECK(expert < experts.size(), "expert {} of {}", expert, experts.size());
    ++expert_begin_[expert + 1];
  }
  for (size_t e = 0; e < experts.size(); ++e) {
    const size_t begin = expert_begin_[e], end = begin + expert_begin_[e + 1];
    expert_begin_[e + 1] = end;
    if (begin == end) continue;
    groups_.push_back({static_cast<const CpuMatrix*>(experts[e].get()),
                       biases == nullptr ? nullptr : biases + e * out.width, begin, end, 0});
  }
  for (size_t i = 0; i < out.rows; ++i) {
    const size_t entry = expert_begin_[chosen[i]]++;
    x_[entry] = row_of(x, x.rows == out.rows ? i : i / routes.used());
    out_[entry] = row_of(out, i);
  }
  run_groups(out.width, x.width);
}

}  // namespace skein::cpu
