// The rope of host backends: its angles at a position, the same code for all of them, since cos and
// sin are arithmetic.h's.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "backend/arithmetic.h"
#include "backend/op_params.h"
#include "base/status.h"

namespace skein {

class HostRope final : public Rope {
 public:
  // As Backend::make_rope.
  static Result<std::unique_ptr<Rope>> make(std::span<const float> frequencies, float magnitude) {
    return std::unique_ptr<Rope>(new HostRope(frequencies, magnitude));
  }

  // [cos | sin], width() floats.
  void angles(uint32_t position, float* out) const {
    for (size_t j = 0; j < frequencies_.size(); ++j) {
      const auto [cos, sin] = arithmetic::cos_sin(static_cast<float>(position) * frequencies_[j]);
      out[j] = cos * magnitude_;
      out[frequencies_.size() + j] = sin * magnitude_;
    }
  }

 private:
  HostRope(std::span<const float> frequencies, float magnitude)
      : Rope(2 * frequencies.size()),
        frequencies_(frequencies.begin(), frequencies.end()),
        magnitude_(magnitude) {}

  std::vector<float> frequencies_;
  float magnitude_;
};

inline const HostRope& host_rope(const Rope& rope) {
  return static_cast<const HostRope&>(rope);
}

}  // namespace skein
