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

// Of packed matrices a worker takes a run of row blocks at a time: few runs, so that memory is read
// in long stretches, but some more than there are workers, for the case that one is held up.
constexpr size_t kRunsPerSlot = 4;
// Runs are whole numbers of what the kernels take at once, of one row or of several.
constexpr size_t kBlocksOfOneRow = 4, kBlocksOfRows = 3;
// Activations that come by for each row block should come from the second-level cache.
constexpr size_t kCachedBytes = size_t{512} << 10;

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

void Linear::prepare_activations(size_t inputs) {
  const size_t groups = groups_of(inputs);
  bool quantizes = false, rounds = false;
  tiles_.clear();
  for (Group& group : groups_) {
    for (const PackedPart& part : group.matrix->packed()) {
      (part.definition() == Definition::kG32 ? quantizes : rounds) = true;
    }
    group.first_tile = tiles_.size();
    for (size_t begin = group.begin; begin < group.end; begin += kTileRows) {
      tiles_.push_back({begin, std::min(kTileRows, group.end - begin)});
    }
  }
  const size_t records = tiles_.size() * groups;
  if (quantizes) quantized_.ensure(records * sizeof(QuantizedRecord) / sizeof(float));
  if (rounds) {
    rounded_.ensure(records * sizeof(Bf16Record) / sizeof(float));
    rests_.ensure(x_.size() * most_rests(groups) * sizeof(Bf16Rest) / sizeof(float));
    rest_counts_.resize(x_.size());
  }
  workers_.run(tiles_.size(), x_.size() * inputs, [&](size_t, size_t i) {
    for (size_t row = 0; row < tiles_[i].rows; ++row) {
      const size_t entry = tiles_[i].begin + row;
      if (quantizes) packed_kernels_.quantize(x_[entry], groups, row, quantized() + i * groups);
      if (!rounds) continue;
      packed_kernels_.round(x_[entry], inputs, row, rounded() + i * groups);
      rest_counts_[entry] = packed_kernels_.find_rests(x_[entry], inputs, rests(entry, groups));
    }
  });
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

void Linear::run_item(const Item& item, size_t inputs) const {
  if (item.part->definition() == Definition::kG32) {
    run_item(item, groups_of(inputs), quantized());
  } else {
    run_item(item, groups_of(inputs), rounded());
    for (size_t i = item.group->begin; i < item.group->end; ++i) {
      if (rest_counts_[i] == 0) continue;
      item.part->add_rests({rests(i, groups_of(inputs)), rest_counts_[i]}, item.first, item.count,
                           out_[i]);
    }
  }
}

void Linear::run_packed(size_t outputs, size_t inputs) {
  prepare_activations(inputs);
  list_items();
  workers_.run(items_.size(), x_.size() * outputs * inputs,
               [&](size_t, size_t i) { run_item(items_[i], inputs); });
}

void Linear::run_groups(size_t outputs, size_t inputs) {
  if (!groups_[0].matrix->packed().empty()) return run_packed(outputs, inputs);
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
  groups_.assign(1, {&matrix, bias, 0, x.rows, 0});
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
                       biases == nullptr ? nullptr : biases + e * out.width, begin, end, 0});
  }
  for (size_t i = 0; i < out.rows; ++i) {
    const size_t entry = expert_begin_[routes.experts[i]]++;
    x_[entry] = x.row(x.rows == out.rows ? i : i / routes.used);
    out_[entry] = out.row(i);
  }
  run_groups(out.width, x.width);
}

}  // namespace skein::cpu
