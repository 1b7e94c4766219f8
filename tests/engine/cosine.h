// How alike two vectors are.
#pragma once

#include <cmath>
#include <cstddef>
#include <vector>

namespace skein::testing {

inline double cosine(const std::vector<float>& a, const std::vector<double>& b) {
  double ab = 0, aa = 0, bb = 0;
  for (size_t i = 0; i < b.size(); ++i) {
    ab += double{a.at(i)} * b[i];
    aa += double{a[i]} * double{a[i]};
    bb += b[i] * b[i];
  }
  return ab / std::sqrt(aa * bb);
}

}  // namespace skein::testing
