// Targets for the sums of a product with packed weights.
#pragma once

#include "backend/cpu/linear_kernels.h"
#include "backend/cpu/math.inl"

namespace skein::cpu {
namespace {

template <class Record>
size_t blocks_of(const PackedMultiply<Record>& a) {
  return (a.outputs + kBlockRows - 1) / kBlockRows;
}

// The place of the sums of row block `block`, row `row`; and how many of its outputs there are.
template <class Record>
float* place_of(const PackedMultiply<Record>& a, size_t block, size_t row) {
  return a.out[row] + a.first_output + block * kBlockRows;
}
template <class Record>
size_t lanes_of(const PackedMultiply<Record>& a, size_t block) {
  const size_t left = a.outputs - block * kBlockRows;
  return left < kBlockRows ? left : kBlockRows;
}

template <class V, class Record>
void store_sum(const PackedMultiply<Record>& a, size_t block, size_t row, typename V::F sum) {
  const size_t lanes = lanes_of(a, block);
  if (a.bias != nullptr) sum = V::add(sum, load_lanes<V>(a.bias + block * kBlockRows, lanes));
  store_lanes<V>(place_of(a, block, row), sum, lanes);
}

}  // namespace
}  // namespace skein::cpu
