// Scratch: memory that an op needs for itself, a part for each slot. Grows to the largest shape it
// has seen and stays.
#pragma once

#include <cstddef>
#include <new>

#include "backend/host/memory.h"

namespace skein::cpu {

class Scratch {
 public:
  explicit Scratch(size_t slots) : slots_(slots) {}

  // At least `floats` for every slot. What was in it may be gone.
  Status reserve(size_t floats) {
    constexpr size_t kLine = 16;  // floats: slots do not share cache lines
    if (floats <= slot_floats_) return ok_status();
    const size_t wanted = (floats + kLine - 1) / kLine * kLine;
    SKEIN_ASSIGN(memory_, allocate_host(wanted * slots_ * sizeof(float)));
    slot_floats_ = wanted;
    return ok_status();
  }

  // The same inside an op, which has no Status to give: memory that cannot be had fails the step,
  // as any other allocation in it would.
  void ensure(size_t floats) {
    if (!reserve(floats).ok()) throw std::bad_alloc();
  }

  float* slot(size_t i) const { return raw(memory_.floats()) + i * slot_floats_; }

 private:
  size_t slots_;
  size_t slot_floats_ = 0;
  Buffer memory_;
};

}  // namespace skein::cpu
