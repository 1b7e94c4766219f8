// What searches take, so that it can be counted as if nothing were known: every search that an
// answer rests on, each once.
//
// While something is found out, searches and what older answers rest on are noted; the note is kept
// beside the answer. Who uses answers counts what their notes reach. So it is the same whether they
// were found out just now or long ago, and by whom.
#pragma once

#include <cstdint>
#include <initializer_list>
#include <span>
#include <vector>

#include "grammar/flat_table.h"

namespace skein::grammar {

using SearchId = uint32_t;
inline constexpr SearchId kNoSearch = 0;

class SearchLog {
 public:
  // What was open before.
  struct Outer {
    size_t parts;
    uint32_t steps;
  };
  Outer begin() {
    const Outer outer{open_.size(), steps_};
    steps_ = 0;
    return outer;
  }
  // What has been noted since; it is not noted in what was open before.
  SearchId end(const Outer& outer) {
    const SearchId made = make(steps_, std::span(open_).subspan(outer.parts));
    open_.resize(outer.parts);
    steps_ = outer.steps;
    return made;
  }
  void add(SearchId searches) {
    if (searches != kNoSearch) open_.push_back(searches);
  }
  void add_steps(uint32_t steps) { steps_ += enabled_ ? steps : 0; }
  SearchId make(uint32_t steps, std::span<const SearchId> parts) {
    if (steps == 0 && parts.size() <= 1) return parts.empty() ? kNoSearch : parts[0];
    const auto from = static_cast<uint32_t>(parts_.size());
    parts_.insert(parts_.end(), parts.begin(), parts.end());
    nodes_.push_back({steps, from, static_cast<uint32_t>(parts.size())});
    return static_cast<SearchId>(nodes_.size());
  }
  SearchId make(uint32_t steps, std::initializer_list<SearchId> parts) {
    return make(steps, std::span(parts.begin(), parts.size()));
  }

  // The steps of all searches that `searches` reaches, but for those that `counted` has met.
  uint64_t steps(SearchId searches, Once& counted) const {
    if (searches == kNoSearch || !counted.first(searches)) return 0;
    uint64_t sum = 0;
    std::vector<SearchId> waiting{searches};
    while (!waiting.empty()) {
      const Node& node = nodes_[waiting.back() - 1];
      waiting.pop_back();
      sum += node.steps;
      for (uint32_t i = 0; i < node.count; ++i) {
        if (counted.first(parts_[node.from + i])) waiting.push_back(parts_[node.from + i]);
      }
    }
    return sum;
  }

  // Until then nothing is noted: what is known for good takes no steps.
  void enable() { enabled_ = true; }
  void forget() {
    std::vector<Node>().swap(nodes_);
    std::vector<SearchId>().swap(parts_);
  }
  uint64_t bytes() const {
    return nodes_.capacity() * sizeof(Node) + parts_.capacity() * sizeof(SearchId);
  }

 private:
  struct Node {
    uint32_t steps, from, count;  // in parts_
  };
  bool enabled_ = false;
  uint32_t steps_ = 0;  // of what is open
  std::vector<SearchId> open_;
  std::vector<Node> nodes_;
  std::vector<SearchId> parts_;
};

}  // namespace skein::grammar
