// TenantTurns: a queue in which tenants take turns, each with what it has in the order of arrival.
// However much one of them has waiting, the next of another waits for one of each that came before.
//
// A place has the number of its turn: that of the latest one that was taken out, or one more than
// the tenant's last. Single-threaded.
#pragma once

#include <algorithm>
#include <cstdint>
#include <deque>
#include <utility>

namespace skein {

template <class Item>
class TenantTurns {
 public:
  bool empty() const { return waiting_.empty(); }
  size_t size() const { return waiting_.size(); }
  void clear() { waiting_.clear(); }

  // May throw std::bad_alloc, and then nothing has changed.
  void push(uint64_t tenant, Item item) {
    uint64_t turn = tenant == latest_tenant_ ? latest_turn_ + 1 : latest_turn_;
    for (const Place& place : waiting_) {
      if (place.tenant == tenant) turn = std::max(turn, place.turn + 1);
    }
    waiting_.push_back({turn, tenant, std::move(item)});
  }

  // Not when it is empty.
  Item pop() {
    const auto next =
        std::min_element(waiting_.begin(), waiting_.end(),
                         [](const Place& a, const Place& b) { return a.turn < b.turn; });
    latest_turn_ = next->turn;
    latest_tenant_ = next->tenant;
    Item item = std::move(next->item);
    waiting_.erase(next);
    return item;
  }

  template <class Condition>
  void erase_if(const Condition& condition) {
    std::erase_if(waiting_, [&](const Place& place) { return condition(place.item); });
  }

 private:
  struct Place {
    uint64_t turn;
    uint64_t tenant;
    Item item;
  };

  std::deque<Place> waiting_;
  uint64_t latest_turn_ = 0;
  uint64_t latest_tenant_ = 0;
};

}  // namespace skein
