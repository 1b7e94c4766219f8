#include "grammar/compiled_grammar.h"

namespace skein::grammar {

Matcher::Matcher(std::shared_ptr<CompiledGrammar> grammar, bool strips_leading_space)
    : grammar_(std::move(grammar)),
      strip_space_(strips_leading_space),
      place_(std::make_shared<CompiledGrammar::Place>()) {}

Matcher::Matcher(const Matcher& other)
    : grammar_(other.grammar_),
      text_(other.text_),
      strip_space_(other.strip_space_),
      place_(std::make_shared<CompiledGrammar::Place>()),
      failed_(other.failed_),
      mask_(other.mask_) {
  const std::lock_guard lock(grammar_->mutex_);
  place_->state = other.state();
  grammar_->add_place(place_);
}

// A state that was saved may not fit into an automaton that others have filled; it does into an
// empty one, as it did before.
StateId Matcher::state() const {
  if (place_->state == kUnknownState) {
    place_->state = grammar_->recognizer_.start();
    grammar_->add_place(place_);
  }
  if (place_->saved != nullptr) {
    const Unhurried whole(grammar_->recognizer_.hurry());
    place_->state = grammar_->recognizer_.restore(*place_->saved);
    if (grammar_->recognizer_.failed()) {
      grammar_->forget();
      place_->state = grammar_->recognizer_.restore(*place_->saved);
    }
    place_->saved = nullptr;
  }
  return place_->state;
}

// What `question` says in this state. Where an automaton that others have filled fails, it is asked
// again of an empty one: only a form that is too large by itself makes its matcher fail.
template <class Question>
auto Matcher::answer(const Question& question) const {
  grammar_->make_room();
  const auto ask = [&] {
    auto result = question(state());
    failed_ = grammar_->recognizer_.failed() && !grammar_->late();
    return result;
  };
  auto result = ask();
  if (!failed_) return result;
  failed_ = grammar_->may_forget();
  if (!failed_) return result;  // it is late
  grammar_->forget();
  result = ask();
  if (failed_) grammar_->forget();
  return result;
}

// What a token adds to the text.
std::string_view Matcher::text_of(TokenId token) const {
  const std::string_view bytes = grammar_->trie_->bytes_of(token);
  return strip_space_ && bytes.starts_with(' ') ? bytes.substr(1) : bytes;
}

// A token may take as much work as a mask.
StateId Matcher::behind_bytes(std::string_view bytes) const {
  uint64_t work = 0;
  const StateId next = answer([&](StateId state) {
    work = 0;
    grammar_->searched_.begin();
    return grammar_->exact_steps(state, text_, bytes, work);
  });
  const uint64_t most =
      grammar_->options_.limits.mask * (1 + bytes.size() / grammar_->trie_->longest());
  failed_ = failed_ || (work > most && !grammar_->late());
  return failed_ || grammar_->late() ? kDeadState : next;
}

StateId Matcher::behind(TokenId token) const {
  if (!grammar_->trie_->bytes_of(token).empty()) return behind_bytes(text_of(token));
  uint64_t work = 0;
  const StateId next = answer([&](StateId state) {
    Recognizer& recognizer = grammar_->recognizer_;
    grammar_->searched_.begin();
    const StateId behind = recognizer.step_token(state, token);
    work = recognizer.state_cost(behind) + recognizer.search_work(behind, grammar_->searched_);
    return behind;
  });
  failed_ = failed_ || (work > grammar_->options_.limits.mask && !grammar_->late());
  return failed_ || grammar_->late() ? kDeadState : next;
}

bool Matcher::allows(TokenId token) const {
  const std::lock_guard lock(grammar_->mutex_);
  return !failed_ && behind(token) != kDeadState;
}

const TokenMask* Matcher::mask() {
  const std::lock_guard lock(grammar_->mutex_);
  if (failed_ || mask_ != nullptr) return mask_.get();
  mask_ = answer([&](StateId state) {
    return strip_space_ ? grammar_->make_first_mask(state, text_)
                        : grammar_->make_mask(state, text_);
  });
  failed_ = failed_ || (mask_ == nullptr && !grammar_->late());
  return mask_.get();
}

bool Matcher::advance(TokenId token) {
  const std::lock_guard lock(grammar_->mutex_);
  const StateId next = failed_ ? kDeadState : behind(token);
  if (next == kDeadState) return false;
  place_->state = next;
  mask_ = nullptr;
  if (grammar_->trie_->bytes_of(token).empty()) return true;
  text_ += text_of(token);
  strip_space_ = false;
  return true;
}

bool Matcher::advance_bytes(std::string_view bytes) {
  const std::lock_guard lock(grammar_->mutex_);
  const StateId next = failed_ ? kDeadState : behind_bytes(bytes);
  if (next == kDeadState) return false;
  place_->state = next;
  mask_ = nullptr;
  text_ += bytes;
  strip_space_ = false;
  return true;
}

bool Matcher::may_end() const {
  const std::lock_guard lock(grammar_->mutex_);
  return !failed_ && grammar_->recognizer_.may_end(state());
}

bool Matcher::must_end() const {
  const std::lock_guard lock(grammar_->mutex_);
  return !failed_ && grammar_->recognizer_.must_end(state());
}

Zone Matcher::zone() {
  if (must_end()) return Zone::kEnded;
  const TokenMask* allowed = mask();
  return allowed != nullptr && allowed->is_free() ? Zone::kFree : Zone::kBound;
}

}  // namespace skein::grammar
