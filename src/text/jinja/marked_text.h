// A string that remembers which of its bytes the template wrote and which came from the outside.
//
// Only the template's own text may yield control tokens, so the mark follows the bytes through
// slices, joins and filters; where a byte's origin is unclear it counts as data.
#pragma once

#include <algorithm>
#include <cstddef>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace skein::jinja {

class MarkedText {
 public:
  MarkedText() = default;
  MarkedText(std::string bytes, bool from_template)
      : bytes_(std::move(bytes)), first_from_template_(from_template) {}

  const std::string& bytes() const { return bytes_; }
  size_t size() const { return bytes_.size(); }
  bool empty() const { return bytes_.empty(); }
  // The bytes that count against a budget: those of the text, and for every turn of the mark those
  // that a rendered piece of its own will take.
  size_t held_bytes() const { return bytes_.size() + flips_.size() * kFlipBytes; }

  void append(std::string_view bytes, bool from_template);
  void append(const MarkedText& other) { append_range(other, 0, other.size()); }
  // The bytes [begin, end) of `other` with their marks; begin <= end <= other.size().
  void append_range(const MarkedText& other, size_t begin, size_t end);
  MarkedText slice(size_t begin, size_t end) const;

  // True when every byte is the template's own (also of an empty text).
  bool from_template() const;

  // Calls fn(bytes, from_template) for each maximal run of equal marks, in order.
  template <class Fn>
  void for_each_run(Fn&& fn) const {
    size_t begin = 0;
    bool mark = first_from_template_;
    for (size_t i = 0; begin < bytes_.size(); ++i, mark = !mark) {
      const size_t end = i < flips_.size() ? flips_[i] : bytes_.size();
      fn(std::string_view(bytes_).substr(begin, end - begin), mark);
      begin = end;
    }
  }

 private:
  static constexpr size_t kFlipBytes = 64;

  std::string bytes_;
  bool first_from_template_ = true;
  std::vector<size_t> flips_;  // ascending offsets in (0, size) at which the mark turns over
};

inline void MarkedText::append(std::string_view bytes, bool from_template) {
  if (bytes.empty()) return;
  if (bytes_.empty()) {
    first_from_template_ = from_template;
  } else if (const bool last = first_from_template_ == (flips_.size() % 2 == 0);
             last != from_template) {
    flips_.push_back(bytes_.size());
  }
  bytes_.append(bytes);
}

inline void MarkedText::append_range(const MarkedText& other, size_t begin, size_t end) {
  if (begin >= end) return;
  auto flip = std::upper_bound(other.flips_.begin(), other.flips_.end(), begin);
  bool mark = other.first_from_template_ == ((flip - other.flips_.begin()) % 2 == 0);
  const std::string_view bytes = other.bytes_;
  while (begin < end) {
    const size_t stop = flip == other.flips_.end() ? end : std::min(*flip, end);
    append(bytes.substr(begin, stop - begin), mark);
    begin = stop;
    mark = !mark;
    if (flip != other.flips_.end()) ++flip;
  }
}

inline MarkedText MarkedText::slice(size_t begin, size_t end) const {
  MarkedText out;
  out.append_range(*this, begin, end);
  return out;
}

inline bool MarkedText::from_template() const {
  return bytes_.empty() || (first_from_template_ && flips_.empty());
}

}  // namespace skein::jinja
