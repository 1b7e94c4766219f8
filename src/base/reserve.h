#pragma once

#include <algorithm>
#include <cstddef>
#include <vector>

namespace skein {

// Capacity for size + 1 elements, growing geometrically: vector::reserve alone would reallocate on
// every call. May throw std::bad_alloc and then leaves the vector as it was.
template <class T>
void reserve_one_more(std::vector<T>& vector, size_t size) {
  if (vector.capacity() <= size) vector.reserve(std::max<size_t>(16, 2 * size));
}

}  // namespace skein
