#include "engine/sampling/token_counts.h"

#include "base/rng.h"

namespace skein {
namespace {

size_t slot_of(TokenId token, size_t slots) {
  return mix64(static_cast<uint32_t>(token)) & (slots - 1);
}

}  // namespace

TokenCounts::Entry& TokenCounts::find_or_add(TokenId token) {
  if (2 * entries_.size() >= slots_.size()) grow();
  size_t slot = slot_of(token, slots_.size());
  while (slots_[slot] != 0) {
    Entry& entry = entries_[slots_[slot] - 1];
    if (entry.token == token) return entry;
    slot = (slot + 1) & (slots_.size() - 1);
  }
  entries_.push_back({token, 0});
  slots_[slot] = static_cast<uint32_t>(entries_.size());
  return entries_.back();
}

void TokenCounts::grow() {
  const size_t size = slots_.empty() ? 64 : 2 * slots_.size();
  slots_.assign(size, 0);
  entries_.reserve(size / 2);
  for (size_t i = 0; i < entries_.size(); ++i) {
    size_t slot = slot_of(entries_[i].token, size);
    while (slots_[slot] != 0) slot = (slot + 1) & (size - 1);
    slots_[slot] = static_cast<uint32_t>(i + 1);
  }
}

}  // namespace skein
