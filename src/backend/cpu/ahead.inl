// Weights that will be wanted next, brought nearer a few lines at a time: reading them and
// computing shall not take turns. Into the second-level cache: the first holds what is computed
// with, and three row blocks of a wide matrix are more than all of it.
#pragma once

#include "backend/cpu/linear_kernels.h"

namespace skein::cpu {
namespace {

struct Ahead {
  const uint8_t* at;
  size_t bytes_a_turn;

  __attribute__((always_inline)) void fetch() {
    constexpr int kToRead = 0, kSecondLevel = 2;
    for (size_t i = 0; i < bytes_a_turn; i += 64) {
      __builtin_prefetch(at + i, kToRead, kSecondLevel);
    }
    at += bytes_a_turn;
  }
};

// `count` row blocks from `block` on, spread over the `turns` of computing before them. There may
// be none any more: an address that is not there costs nothing.
template <class Record>
Ahead ahead_of(const PackedMultiply<Record>& a, size_t block, size_t count, size_t turns) {
  const size_t lines = count * a.block_stride / 64;
  return {a.weights + block * a.block_stride, (lines + turns - 1) / turns * 64};
}

}  // namespace
}  // namespace skein::cpu
