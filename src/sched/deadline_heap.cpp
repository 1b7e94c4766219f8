#include "sched/deadline_heap.h"

#include "sched/batch_request.h"

namespace skein {
namespace {

// Ties by order of submission, so that the order of expiry is a pure function of the trace.
bool sooner(const BatchRequest* a, const BatchRequest* b) {
  return a->deadline != b->deadline ? a->deadline < b->deadline : a->order < b->order;
}

}  // namespace

void DeadlineHeap::add(BatchRequest& request) {
  heap_.push_back(&request);
  sift_up(heap_.size() - 1);
}

void DeadlineHeap::remove(BatchRequest& request) {
  const size_t index = request.deadline_index;
  if (index == UINT32_MAX) return;
  request.deadline_index = UINT32_MAX;
  BatchRequest* last = heap_.back();
  heap_.pop_back();
  if (last == &request) return;
  place(last, index);
  sift_up(index);
  sift_down(last->deadline_index);
}

BatchRequest* DeadlineHeap::due(TimeUs now) const {
  return !heap_.empty() && heap_.front()->deadline <= now ? heap_.front() : nullptr;
}

void DeadlineHeap::place(BatchRequest* request, size_t index) {
  heap_[index] = request;
  request->deadline_index = static_cast<uint32_t>(index);
}

void DeadlineHeap::sift_up(size_t index) {
  BatchRequest* request = heap_[index];
  while (index > 0 && sooner(request, heap_[(index - 1) / 2])) {
    place(heap_[(index - 1) / 2], index);
    index = (index - 1) / 2;
  }
  place(request, index);
}

void DeadlineHeap::sift_down(size_t index) {
  BatchRequest* request = heap_[index];
  for (size_t child; (child = 2 * index + 1) < heap_.size(); index = child) {
    if (child + 1 < heap_.size() && sooner(heap_[child + 1], heap_[child])) ++child;
    if (!sooner(heap_[child], request)) break;
    place(heap_[child], index);
  }
  place(request, index);
}

}  // namespace skein
