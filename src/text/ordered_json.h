// JSON values as clients send them and templates print them: members keep their order.
//
// nlohmann's destructor moves what nests onto a std::vector, so it allocates, and where that throws
// the process ends. Here the vectors of values wait for memory instead (base/patience.h).
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <new>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "base/patience.h"

namespace skein {

// nlohmann's own, under a name of ours: std::allocator may be specialized for types that depend on
// one of the program's.
template <class T, class Enable = void>
struct JsonSerializer : nlohmann::adl_serializer<T, Enable> {};

using OrderedJson = nlohmann::basic_json<nlohmann::ordered_map, std::vector, std::string, bool,
                                         int64_t, uint64_t, double, std::allocator, JsonSerializer>;

}  // namespace skein

template <>
struct std::allocator<skein::OrderedJson> {
  using value_type = skein::OrderedJson;

  allocator() = default;
  template <class U>
  allocator(const std::allocator<U>&) {}

  value_type* allocate(size_t count) {
    const skein::PatientScope patient;
    return static_cast<value_type*>(::operator new(count * sizeof(value_type)));
  }
  void deallocate(value_type* values, size_t) { ::operator delete(values); }
  friend bool operator==(const allocator&, const allocator&) { return true; }
};

namespace skein {

inline constexpr size_t kMaxJsonLevels = 128;
inline constexpr size_t kMaxJsonValues = 1 << 20;

struct JsonError {
  size_t offset;  // of the first byte that is wrong
  std::string_view reason;
};

// Strict RFC 8259: valid UTF-8, no NaN, infinities or numbers beyond a double. Of members with one
// name the last counts, at the place of the first. More nesting or values than the limits are
// refused; the caller has bounded the size of `text`. Time is linear, whatever the names are.
std::variant<OrderedJson, JsonError> parse_ordered_json(std::string_view text);

}  // namespace skein
