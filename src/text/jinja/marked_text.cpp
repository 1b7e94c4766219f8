#include "text/jinja/marked_text.h"

#include <algorithm>

namespace skein::jinja {

void MarkedText::append(std::string_view bytes, bool from_template) {
  if (bytes.empty()) return;
  if (bytes_.empty()) {
    first_from_template_ = from_template;
  } else if (const bool last = first_from_template_ == (flips_.size() % 2 == 0);
             last != from_template) {
    flips_.push_back(bytes_.size());
  }
  bytes_.append(bytes);
}

void MarkedText::append_range(const MarkedText& other, size_t begin, size_t end) {
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

MarkedText MarkedText::slice(size_t begin, size_t end) const {
  MarkedText out;
  out.append_range(*this, begin, end);
  return out;
}

bool MarkedText::from_template() const {
  return bytes_.empty() || (first_from_template_ && flips_.empty());
}

bool MarkedText::from_template_at(size_t pos) const {
  const auto flip = std::upper_bound(flips_.begin(), flips_.end(), pos);
  return first_from_template_ == ((flip - flips_.begin()) % 2 == 0);
}

}  // namespace skein::jinja
