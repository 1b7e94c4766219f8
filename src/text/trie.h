// A trie over bytes in flat arrays, for finding every key that a text starts with. Immutable once
// built, so any thread may look up.
#pragma once

#include <cstdint>
#include <string_view>
#include <utility>
#include <vector>

namespace skein {

class Trie {
 public:
  using Key = std::pair<std::string_view, int32_t>;  // text, value >= 0

  Trie() = default;
  // Empty keys are left out; of equal keys the one with the smallest value stays.
  explicit Trie(std::vector<Key> keys);

  bool empty() const { return labels_.empty(); }
  bool may_start_with(char first) const { return starts_[static_cast<uint8_t>(first)]; }

  // Calls take(length, value) for each key that `text` starts with, the shortest first.
  template <class Take>
  void prefixes(std::string_view text, const Take& take) const {
    if (empty()) return;
    uint32_t node = 0;
    for (size_t i = 0; i < text.size(); ++i) {
      node = child(node, static_cast<uint8_t>(text[i]));
      if (node == 0) return;
      if (values_[node] >= 0) take(i + 1, values_[node]);
    }
  }

 private:
  // 0, which is the root and nobody's child, when there is none.
  uint32_t child(uint32_t node, uint8_t label) const;

  // Nodes are numbered breadth first, so node k + 1 is what the k-th edge leads to, and the edges
  // of a node lie side by side, sorted by label.
  std::vector<uint32_t> first_edge_;  // per node, and one more at the end
  std::vector<int32_t> values_;       // per node; -1 where no key ends
  std::vector<uint8_t> labels_;       // per edge
  std::vector<bool> starts_ = std::vector<bool>(256);
};

}  // namespace skein
