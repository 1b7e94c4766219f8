#include "sched/priority_queue_with_aging.h"

#include "base/check.h"

namespace skein {

TimeUs PriorityQueueWithAging::key_for(TimeUs arrival, Priority priority) const {
  return arrival + static_cast<TimeUs>(priority) * us_per_class_;
}

TimeUs PriorityQueueWithAging::oldest_arrival(Priority priority) const {
  const List& list = lists_[static_cast<size_t>(priority)];
  if (list.head == kNone) return kNever;
  return list.nodes[list.head].entry.key - key_for(0, priority);
}

int64_t PriorityQueueWithAging::effective_priority_milli(TimeUs arrival, Priority priority,
                                                         TimeUs now) const {
  const TimeUs wait = now - arrival;
  const int64_t aged = wait / us_per_class_ * 1000 + wait % us_per_class_ * 1000 / us_per_class_;
  return static_cast<int64_t>(priority) * 1000 - aged;
}

PriorityQueueWithAging::Handle PriorityQueueWithAging::push(Priority priority, const Entry& entry) {
  List& list = lists_[static_cast<size_t>(priority)];
  std::vector<Node>& nodes = list.nodes;
  // Arrivals come in order, so a new entry goes to the end; only returning ones look for their
  // place, and that is near the front.
  uint32_t next = kNone;
  if (list.tail != kNone && before(entry, nodes[list.tail].entry)) {
    next = list.head;
    while (before(nodes[next].entry, entry)) next = nodes[next].next;
  }
  const uint32_t prev = next == kNone ? list.tail : nodes[next].prev;
  uint32_t index = list.unused;
  if (index == kNone) {
    index = static_cast<uint32_t>(nodes.size());
    nodes.emplace_back();
  } else {
    list.unused = nodes[index].next;
  }
  nodes[index] = {entry, prev, next};
  (prev == kNone ? list.head : nodes[prev].next) = index;
  (next == kNone ? list.tail : nodes[next].prev) = index;
  ++list.size;
  return {priority, index};
}

void PriorityQueueWithAging::erase(Handle handle) {
  List& list = lists_[static_cast<size_t>(handle.priority)];
  std::vector<Node>& nodes = list.nodes;
  SKEIN_CHECK(handle.index < nodes.size() && nodes[handle.index].entry.request != nullptr,
              "queue handle {} of {} is not in use", handle.index, nodes.size());
  Node& node = nodes[handle.index];
  (node.prev == kNone ? list.head : nodes[node.prev].next) = node.next;
  (node.next == kNone ? list.tail : nodes[node.next].prev) = node.prev;
  node.entry.request = nullptr;
  node.next = list.unused;
  list.unused = handle.index;
  --list.size;
}

PriorityQueueWithAging::First PriorityQueueWithAging::first() const {
  const List* best = nullptr;
  const auto head_of = [](const List& list) -> const Entry& { return list.nodes[list.head].entry; };
  for (const List& list : lists_) {
    if (list.head == kNone) continue;
    if (best == nullptr || before(head_of(list), head_of(*best))) best = &list;
  }
  SKEIN_CHECK(best != nullptr, "top of an empty queue");
  return {{static_cast<Priority>(best - lists_.data()), best->head}, head_of(*best)};
}

void PriorityQueueWithAging::pop() {
  erase(first().handle);
}

}  // namespace skein
