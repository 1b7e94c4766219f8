#include "sched/priority_queue_with_aging.h"

#include "base/check.h"

namespace skein {

TimeUs PriorityQueueWithAging::key_for(TimeUs arrival, Priority priority) const {
  return arrival + static_cast<TimeUs>(priority) * us_per_class_;
}

int64_t PriorityQueueWithAging::effective_priority_milli(TimeUs arrival, Priority priority,
                                                         TimeUs now) const {
  const TimeUs wait = now - arrival;
  const int64_t aged = wait / us_per_class_ * 1000 + wait % us_per_class_ * 1000 / us_per_class_;
  return static_cast<int64_t>(priority) * 1000 - aged;
}

PriorityQueueWithAging::Handle PriorityQueueWithAging::take_node() {
  if (unused_ == kNone) {
    nodes_.emplace_back();
    return static_cast<Handle>(nodes_.size() - 1);
  }
  const Handle handle = unused_;
  unused_ = nodes_[handle].next;
  return handle;
}

PriorityQueueWithAging::Handle PriorityQueueWithAging::push(Priority priority, const Entry& entry) {
  const Handle handle = take_node();
  List& list = lists_[static_cast<size_t>(priority)];
  // Arrivals come in order, so a new entry goes to the end; only returning ones look for their
  // place, and that is near the front.
  Handle next = kNone;
  if (list.tail != kNone && before(entry, nodes_[list.tail].entry)) {
    next = list.head;
    while (before(nodes_[next].entry, entry)) next = nodes_[next].next;
  }
  const Handle prev = next == kNone ? list.tail : nodes_[next].prev;
  nodes_[handle] = {entry, prev, next, priority};
  (prev == kNone ? list.head : nodes_[prev].next) = handle;
  (next == kNone ? list.tail : nodes_[next].prev) = handle;
  ++list.size;
  ++size_;
  return handle;
}

void PriorityQueueWithAging::erase(Handle handle) {
  SKEIN_CHECK(handle < nodes_.size() && nodes_[handle].entry.request != nullptr,
              "queue handle {} of {} is not in use", handle, nodes_.size());
  Node& node = nodes_[handle];
  List& list = lists_[static_cast<size_t>(node.priority)];
  (node.prev == kNone ? list.head : nodes_[node.prev].next) = node.next;
  (node.next == kNone ? list.tail : nodes_[node.next].prev) = node.prev;
  --list.size;
  --size_;
  node = Node{};
  node.next = unused_;
  unused_ = handle;
}

PriorityQueueWithAging::Handle PriorityQueueWithAging::first() const {
  Handle best = kNone;
  for (const List& list : lists_) {
    if (list.head == kNone) continue;
    if (best == kNone || before(nodes_[list.head].entry, nodes_[best].entry)) best = list.head;
  }
  SKEIN_CHECK(best != kNone, "top of an empty queue");
  return best;
}

uint32_t PriorityQueueWithAging::position(Handle handle) const {
  uint32_t ahead = 0;
  for (const List& list : lists_) {
    for (Handle h = list.head; h != kNone && before(nodes_[h].entry, nodes_[handle].entry);
         h = nodes_[h].next) {
      ++ahead;
    }
  }
  return ahead + 1;
}

}  // namespace skein
