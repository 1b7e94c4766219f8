#include "engine/forms/form_place.h"

#include <algorithm>
#include <chrono>

namespace skein {

const grammar::TokenMask* FormPlace::mask(uint64_t& took_ns) {
  const auto started = std::chrono::steady_clock::now();
  const grammar::TokenMask* mask = matcher_.mask();
  const std::chrono::nanoseconds took = std::chrono::steady_clock::now() - started;
  took_ns = static_cast<uint64_t>(took.count());
  form_->meter->add_mask(took_ns);
  return mask;
}

bool FormPlace::advance(TokenId token) {
  if (!matcher_.advance(token)) return false;
  if (limits_thought_) count_thought(token);
  return true;
}

TokenId FormPlace::forced() const {
  if (!in_thought_ || thought_left_ > 0 || ended_ids_ >= form_->thought->end_ids.size()) {
    return kNoToken;
  }
  return form_->thought->end_ids[ended_ids_];
}

// `text` stands before a marker that is a token; else it is the marker, and `token` has brought the
// last byte of it.
bool FormPlace::has_just_come(TokenId token, TokenId marker, const std::string& text) const {
  const std::string_view all = matcher_.text();
  if (marker != kNoToken) return token == marker && all.ends_with(text);
  if (text.empty()) return false;
  const size_t bytes = form_->grammar->trie().bytes_of(token).size();
  const size_t looked_at = std::min(all.size(), bytes + text.size() - 1);
  return all.substr(all.size() - looked_at).find(text) != std::string_view::npos;
}

void FormPlace::count_thought(TokenId token) {
  const ThoughtMarkers& markers = *form_->thought;
  if (!in_thought_) {
    in_thought_ = has_just_come(token, markers.begin, markers.begin_text);
  } else if (has_just_come(token, markers.end, markers.end_text)) {
    in_thought_ = false;
    ended_ids_ = 0;
  } else if (thought_left_ > 0) {
    --thought_left_;
  } else {
    ++ended_ids_;
  }
}

}  // namespace skein
