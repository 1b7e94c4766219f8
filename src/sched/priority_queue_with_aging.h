// PriorityQueueWithAging: who is next, such that nobody starves.
//
// The effective priority of a request is class - rate x wait. Two requests age at the same rate, so
// their order never changes: it is the constant key arrival + class / rate. Within one class that
// is the order of arrival, so three FIFO lists do: push and pop are O(1) at any length, with no
// clock and no heap. An entry that comes back after preemption keeps its key and so its place.
//
// Bound on waiting: nothing that arrives more than (class gap / rate) later goes ahead.
// Single-threaded. push() allocates only beyond what reserve_one_more() took.
#pragma once

#include <array>
#include <cstdint>
#include <vector>

#include "base/reserve.h"
#include "base/time.h"
#include "sched/types.h"

namespace skein {

struct BatchRequest;

class PriorityQueueWithAging {
 public:
  struct Entry {
    TimeUs key = 0;
    uint64_t order = 0;  // breaks ties; unique
    BatchRequest* request = nullptr;
  };
  struct Handle {
    Priority priority = Priority::NORMAL;
    uint32_t index = UINT32_MAX;
  };

  explicit PriorityQueueWithAging(TimeUs us_per_class) : us_per_class_(us_per_class) {}

  // arrival + class / rate, the constant that orders requests.
  TimeUs key_for(TimeUs arrival, Priority priority) const;
  // 1000 x (class - rate x wait).
  int64_t effective_priority_milli(TimeUs arrival, Priority priority, TimeUs now) const;

  // Room for one more than `size` in any class, so that a push cannot fail.
  void reserve_one_more(size_t size) {
    for (List& list : lists_) skein::reserve_one_more(list.nodes, size);
  }
  // O(1) for a new arrival; for one that comes back, the number of older ones that also came back.
  Handle push(Priority priority, const Entry& entry);
  void erase(Handle handle);

  bool empty() const { return size() == 0; }
  uint32_t size() const { return lists_[0].size + lists_[1].size + lists_[2].size; }
  uint32_t size(Priority priority) const { return lists_[static_cast<size_t>(priority)].size; }
  // When the oldest of a class arrived; kNever when nobody waits.
  TimeUs oldest_arrival(Priority priority) const;
  // The entry with the smallest (key, order). Needs !empty(), and so does pop().
  const Entry& top() const { return first().entry; }
  void pop();
  // Calls visit(entry) for everyone who waits, best first.
  template <class Visit>
  void visit(Visit&& visit) const;

 private:
  static constexpr uint32_t kNone = UINT32_MAX;

  struct Node {
    Entry entry;
    uint32_t prev = kNone;
    uint32_t next = kNone;  // also links unused nodes
  };
  // One class. Its nodes are reused in about the order they were taken, so that a long queue is
  // read along memory, not across it.
  struct List {
    std::vector<Node> nodes;
    uint32_t head = kNone;
    uint32_t tail = kNone;
    uint32_t unused = kNone;
    uint32_t size = 0;
  };

  static bool before(const Entry& a, const Entry& b) {
    return a.key != b.key ? a.key < b.key : a.order < b.order;
  }

  struct First {
    Handle handle;
    const Entry& entry;
  };
  First first() const;

  TimeUs us_per_class_;
  std::array<List, kPriorities> lists_;
};

template <class Visit>
void PriorityQueueWithAging::visit(Visit&& visit) const {
  std::array<uint32_t, kPriorities> at;
  for (size_t p = 0; p < kPriorities; ++p) at[p] = lists_[p].head;
  for (uint32_t left = size(); left > 0; --left) {
    size_t best = kPriorities;
    for (size_t p = 0; p < kPriorities; ++p) {
      if (at[p] == kNone) continue;
      if (best == kPriorities ||
          before(lists_[p].nodes[at[p]].entry, lists_[best].nodes[at[best]].entry)) {
        best = p;
      }
    }
    const Node& node = lists_[best].nodes[at[best]];
    at[best] = node.next;
    visit(node.entry);
  }
}

}  // namespace skein
