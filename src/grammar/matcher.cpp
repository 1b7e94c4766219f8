#include "grammar/compiled_grammar.h"

namespace skein::grammar {

Matcher::Matcher(std::shared_ptr<CompiledGrammar> grammar, bool strips_leading_space)
    : grammar_(std::move(grammar)), strip_space_(strips_leading_space) {
  const std::lock_guard lock(grammar_->mutex_);
  generation_ = grammar_->generation_;
  state_ = grammar_->recognizer_.start();
}

void Matcher::catch_up() const {
  if (generation_ == grammar_->generation_) return;
  generation_ = grammar_->generation_;
  state_ = kDeadState;
  if (failed_) return;
  state_ = grammar_->recognizer_.start();
  size_t control = 0;
  for (size_t i = 0; i <= text_.size(); ++i) {
    // As when the text was written: a budget for each byte, whoever asked before.
    grammar_->recognizer_.regex().allow_more_questions();
    for (; control < controls_.size() && controls_[control].at == i; ++control) {
      state_ = grammar_->recognizer_.step_token(state_, controls_[control].token);
    }
    if (i == text_.size()) break;
    state_ = grammar_->exact_step(state_, "", text_, i);
  }
  if (give_up()) catch_up();  // the others who share the grammar start afresh
}

bool Matcher::give_up() const {
  if (!grammar_->recognizer_.failed()) return false;
  failed_ = true;
  grammar_->forget();
  return true;
}

// What a token adds to the text.
std::string_view Matcher::text_of(TokenId token) const {
  const std::string_view bytes = grammar_->trie_->bytes_of(token);
  return strip_space_ && bytes.starts_with(' ') ? bytes.substr(1) : bytes;
}

bool Matcher::allows(TokenId token) const {
  const std::lock_guard lock(grammar_->mutex_);
  grammar_->make_room();
  catch_up();
  if (failed_) return false;
  const bool allowed = grammar_->trie_->bytes_of(token).empty()
                           ? grammar_->recognizer_.step_token(state_, token) != kDeadState
                           : grammar_->exactly_allowed(state_, text_, text_of(token));
  return !give_up() && allowed;
}

const TokenMask* Matcher::mask() {
  const std::lock_guard lock(grammar_->mutex_);
  grammar_->make_room();
  catch_up();
  if (failed_ || mask_ != nullptr) return mask_.get();
  mask_ =
      strip_space_ ? grammar_->make_first_mask(state_, text_) : grammar_->make_mask(state_, text_);
  if (mask_ == nullptr) {  // the others who share the grammar start afresh
    failed_ = true;
    grammar_->forget();
  }
  return mask_.get();
}

bool Matcher::advance(TokenId token) {
  const std::lock_guard lock(grammar_->mutex_);
  grammar_->make_room();
  catch_up();
  if (failed_) return false;
  if (grammar_->trie_->bytes_of(token).empty()) return take_control(token);
  return take_bytes(text_of(token));
}

bool Matcher::advance_bytes(std::string_view bytes) {
  const std::lock_guard lock(grammar_->mutex_);
  grammar_->make_room();
  catch_up();
  return !failed_ && take_bytes(bytes);
}

bool Matcher::take_bytes(std::string_view bytes) {
  StateId state = state_;
  for (size_t i = 0; i < bytes.size() && state != kDeadState; ++i) {
    state = grammar_->exact_step(state, text_, bytes, i);
  }
  if (give_up() || state == kDeadState) return false;
  text_ += bytes;
  state_ = state;
  strip_space_ = false;
  mask_ = nullptr;
  return true;
}

bool Matcher::take_control(TokenId token) {
  const StateId state = grammar_->recognizer_.step_token(state_, token);
  if (give_up() || state == kDeadState) return false;
  controls_.push_back({text_.size(), token});
  state_ = state;
  mask_ = nullptr;
  return true;
}

bool Matcher::may_end() const {
  const std::lock_guard lock(grammar_->mutex_);
  catch_up();
  return grammar_->recognizer_.may_end(state_);
}

bool Matcher::must_end() const {
  const std::lock_guard lock(grammar_->mutex_);
  catch_up();
  return grammar_->recognizer_.must_end(state_);
}

Zone Matcher::zone() {
  if (must_end()) return Zone::kEnded;
  const TokenMask* allowed = mask();
  return allowed != nullptr && allowed->has_all(grammar_->trie_->all()) ? Zone::kFree
                                                                        : Zone::kBound;
}

}  // namespace skein::grammar
