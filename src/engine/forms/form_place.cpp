#include "engine/forms/form_place.h"

#include <chrono>

namespace skein {

bool FormPlace::allows(TokenId token) const {
  return is_first() ? form_->first->has(token) : matcher_.allows(token);
}

const grammar::TokenMask* FormPlace::mask() {
  if (is_first()) return &*form_->first;
  const auto started = std::chrono::steady_clock::now();
  const grammar::TokenMask* mask = matcher_.mask();
  const std::chrono::nanoseconds took = std::chrono::steady_clock::now() - started;
  form_->meter->add_mask(static_cast<uint64_t>(took.count()));
  return mask;
}

bool FormPlace::advance(TokenId token) {
  if (!is_first()) return matcher_.advance(token);
  std::string_view bytes = form_->grammar->trie().bytes_of(token);
  if (bytes.starts_with(' ')) bytes.remove_prefix(1);
  return !bytes.empty() && matcher_.advance_bytes(bytes);
}

}  // namespace skein
