// DeadlineHeap: the live requests that have a deadline, soonest first. A binary heap that tells
// each request its index, so that one that ends leaves in O(log n). Single-threaded; add()
// allocates only beyond what reserve_one_more() took.
#pragma once

#include <cstddef>
#include <vector>

#include "base/reserve.h"
#include "base/time.h"

namespace skein {

struct BatchRequest;

class DeadlineHeap {
 public:
  // Room for one more than `size`, so that the next call that adds cannot fail.
  void reserve_one_more(size_t size) { skein::reserve_one_more(heap_, size); }
  void add(BatchRequest& request);
  void remove(BatchRequest& request);  // nothing if it is not in
  // The request with the soonest deadline if that is <= now, else null.
  BatchRequest* due(TimeUs now) const;
  size_t size() const { return heap_.size(); }

 private:
  void place(BatchRequest* request, size_t index);
  void sift_up(size_t index);
  void sift_down(size_t index);

  std::vector<BatchRequest*> heap_;
};

}  // namespace skein
