// Hash tables without a node per entry: what the automaton looks up at every step.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <type_traits>
#include <utility>
#include <vector>

namespace skein::grammar {

inline uint64_t spread_bits(uint64_t h) {
  h ^= h >> 32;
  h *= 0xd6e8feb86659fd93;
  h ^= h >> 32;
  return h;
}

// Of values that are words of 32 bits and nothing else.
template <class T>
uint64_t words_hash(std::span<const T> values, uint64_t seed = 0) {
  static_assert(sizeof(T) % 4 == 0 && std::has_unique_object_representations_v<T>);
  uint64_t h = seed + values.size() * 0x9e3779b97f4a7c15;
  const auto* words = reinterpret_cast<const uint32_t*>(values.data());
  for (size_t i = 0; i < values.size() * sizeof(T) / 4; ++i) {
    h = (h ^ words[i]) * 0xd6e8feb86659fd93;
    h ^= h >> 32;
  }
  return h;
}

// Ids by the hash of what they stand for; the caller compares.
class IdTable {
 public:
  template <class Same>
  std::optional<uint32_t> find(uint64_t hash, const Same& same) const {
    if (slots_.empty()) return std::nullopt;
    const size_t mask = slots_.size() - 1;
    for (size_t at = hash & mask; slots_[at].id != 0; at = (at + 1) & mask) {
      if (slots_[at].hash == hash && same(slots_[at].id - 1)) return slots_[at].id - 1;
    }
    return std::nullopt;
  }
  void add(uint64_t hash, uint32_t id) {
    if ((size_ + 1) * 2 > slots_.size()) grow();
    put(hash, id + 1);
    ++size_;
  }
  void clear() {
    std::vector<Slot>().swap(slots_);  // an empty list would keep the memory
    size_ = 0;
  }
  uint64_t bytes() const { return slots_.capacity() * sizeof(Slot); }

 private:
  struct Slot {
    uint64_t hash;
    uint32_t id;  // and 1; 0: free
  };
  void put(uint64_t hash, uint32_t id) {
    const size_t mask = slots_.size() - 1;
    size_t at = hash & mask;
    while (slots_[at].id != 0) at = (at + 1) & mask;
    slots_[at] = {hash, id};
  }
  void grow() {
    std::vector<Slot> old(slots_.empty() ? 64 : slots_.size() * 2);
    old.swap(slots_);
    for (const Slot& slot : old) {
      if (slot.id != 0) put(slot.hash, slot.id);
    }
  }
  std::vector<Slot> slots_;
  size_t size_ = 0;
};

// Which ids have been met since begin().
class Once {
 public:
  void begin() {
    if (++round_ != 0) return;
    std::fill(met_.begin(), met_.end(), 0);
    round_ = 1;
  }
  bool first(uint32_t id) {
    if (id >= met_.size()) met_.resize(size_t{id} * 2 + 64, 0);
    return std::exchange(met_[id], round_) != round_;
  }
  void forget() { met_.clear(); }

 private:
  std::vector<uint32_t> met_;  // the round that met it last
  uint32_t round_ = 1;
};

// Small values by keys that are not 0.
template <class Value>
class FlatMap {
 public:
  const Value* find(uint64_t key) const {
    if (slots_.empty()) return nullptr;
    const size_t mask = slots_.size() - 1;
    for (size_t at = spread_bits(key) & mask; slots_[at].key != 0; at = (at + 1) & mask) {
      if (slots_[at].key == key) return &slots_[at].value;
    }
    return nullptr;
  }
  // The key must be new.
  void add(uint64_t key, Value value) {
    if ((size_ + 1) * 2 > slots_.size()) grow();
    put({key, value});
    ++size_;
  }
  void clear() {
    std::vector<Slot>().swap(slots_);  // an empty list would keep the memory
    size_ = 0;
  }
  uint64_t bytes() const { return slots_.capacity() * sizeof(Slot); }

 private:
  struct Slot {
    uint64_t key = 0;
    Value value{};
  };
  void put(const Slot& slot) {
    const size_t mask = slots_.size() - 1;
    size_t at = spread_bits(slot.key) & mask;
    while (slots_[at].key != 0) at = (at + 1) & mask;
    slots_[at] = slot;
  }
  void grow() {
    std::vector<Slot> old(slots_.empty() ? 64 : slots_.size() * 2);
    old.swap(slots_);
    for (const Slot& slot : old) {
      if (slot.key != 0) put(slot);
    }
  }
  std::vector<Slot> slots_;
  size_t size_ = 0;
};

}  // namespace skein::grammar
