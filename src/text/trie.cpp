#include "text/trie.h"

#include <algorithm>

namespace skein {

Trie::Trie(std::vector<Key> keys) {
  std::sort(keys.begin(), keys.end());
  struct Node {
    size_t begin;  // of the keys below it
    size_t end;
    size_t depth;
  };
  std::vector<Node> nodes = {{0, keys.size(), 0}};
  for (size_t n = 0; n < nodes.size(); ++n) {
    auto [i, end, depth] = nodes[n];
    first_edge_.push_back(static_cast<uint32_t>(labels_.size()));
    values_.push_back(-1);
    // Keys that end here sort before those that go on.
    for (; i < end && keys[i].first.size() == depth; ++i) {
      if (depth > 0 && values_.back() < 0) values_.back() = keys[i].second;
    }
    while (i < end) {
      const char label = keys[i].first[depth];
      size_t next = i;
      while (next < end && keys[next].first[depth] == label) ++next;
      labels_.push_back(static_cast<uint8_t>(label));
      nodes.push_back({i, next, depth + 1});
      i = next;
    }
  }
  first_edge_.push_back(static_cast<uint32_t>(labels_.size()));
  for (const Key& key : keys) {
    if (!key.first.empty()) starts_[static_cast<uint8_t>(key.first[0])] = true;
  }
}

uint32_t Trie::child(uint32_t node, uint8_t label) const {
  const auto begin = labels_.begin() + first_edge_[node];
  const auto end = labels_.begin() + first_edge_[node + 1];
  // Sorted as the keys are, by unsigned bytes.
  const auto found = std::lower_bound(begin, end, label);
  if (found == end || *found != label) return 0;
  return static_cast<uint32_t>(found - labels_.begin()) + 1;
}

}  // namespace skein
