#include "grammar/compiled_grammar.h"

#include <algorithm>

#include "grammar/json_text.h"

namespace skein::grammar {

CompiledGrammar::CompiledGrammar(Rules rules, std::shared_ptr<const TokenTrie> trie,
                                 const GrammarOptions& options)
    : trie_(std::move(trie)),
      options_(options),
      recognizer_([&] {
        RegexStore& store = *rules.regex;
        const CharSet plain{{0x20, 0x21}, {0x23, 0x5B}, {0x5D, kMaxCodePoint}};
        const ExprId one = one_char(store, plain, Spelling::kUtf8);
        for (const TokenTrie::Slice& slice : trie_->slices()) {
          if (slice.longest == 0) continue;
          slice_words_.push_back(
              {store.repeat(one, 1, slice.longest), store.repeat(one, 0, kUnbounded)});
        }
        return Recognizer(std::move(rules));
      }()),
      bytes_at_first_(recognizer_.bytes()) {}

FormResult<std::shared_ptr<CompiledGrammar>> compile(Rules rules,
                                                     std::shared_ptr<const TokenTrie> trie,
                                                     const GrammarOptions& options) {
  FormResult<Rules> finished = finished_rules(std::move(rules));
  if (!finished.ok()) return finished.error();
  auto grammar =
      std::make_shared<CompiledGrammar>(std::move(finished).value(), std::move(trie), options);
  return grammar;
}

// A byte of a real text: a distinct scalar that ends with it is added to what its list has seen.
StateId CompiledGrammar::exact_step(StateId state, std::string_view text, uint8_t byte) {
  const StateId next = recognizer_.step(state, byte);
  if (next == kDeadState || !recognizer_.pending(next)) return next;
  return recognizer_.resolve(next, scalar_spellings(recognizer_.regex(), last_scalar(text)));
}

bool CompiledGrammar::exactly_allowed(StateId state, std::string_view text,
                                      std::string_view bytes) {
  std::string all(text);
  for (const char c : bytes) {
    all += c;
    state = exact_step(state, all, static_cast<uint8_t>(c));
    if (state == kDeadState) return false;
  }
  return true;
}

// False: it took more than a mask may.
bool CompiledGrammar::walk(const TokenTrie::Slice& slice, StateId state, std::string_view text,
                           TokenMask& mask, uint64_t& work) {
  struct Level {
    uint32_t next, end;
    StateId state;
    bool unsure;
  };
  const std::vector<TokenTrie::Node>& nodes = slice.nodes;
  std::vector<Level> path;
  path.reserve(trie_->longest() + 1);
  path.push_back({nodes[0].first_child, nodes[0].first_child + nodes[0].children, state, false});
  while (!path.empty()) {
    Level& level = path.back();
    if (level.next == level.end) {
      path.pop_back();
      continue;
    }
    const TokenTrie::Node& node = nodes[level.next++];
    const StateId next = recognizer_.step(level.state, node.byte);
    ++work;
    if (next == kDeadState) continue;
    if (next >= visited_.size()) visited_.resize(size_t{next} * 2, 0);
    if (visited_[next] != walk_) {  // as if every mask met its states for the first time
      visited_[next] = walk_;
      work += recognizer_.state_cost(next);
      if (work > kMaxMaskWork || recognizer_.failed()) return false;
    }
    const bool unsure = level.unsure || recognizer_.unsure(next);
    if (node.token != kNoToken &&
        (!unsure || exactly_allowed(state, text, trie_->bytes_of(node.token)))) {
      for (TokenId t = node.token; t != kNoToken; t = trie_->same_bytes(t)) mask.set(t);
    }
    if (node.children > 0) {
      path.push_back({node.first_child, node.first_child + node.children, next, unsure});
    }
  }
  return !recognizer_.failed();
}

std::shared_ptr<const TokenMask> CompiledGrammar::find_mask(StateId state) {
  const auto found = mask_of_.find(state);
  if (found == mask_of_.end()) return nullptr;
  masks_.splice(masks_.begin(), masks_, found->second);
  return found->second->mask;
}

std::shared_ptr<const TokenMask> CompiledGrammar::make_mask(StateId state, std::string_view text) {
  state = recognizer_.clamped(state, trie_->longest());
  if (std::shared_ptr<const TokenMask> known = find_mask(state)) return known;
  auto mask = std::make_shared<TokenMask>(trie_->size());
  if (++walk_ == 0) {
    std::fill(visited_.begin(), visited_.end(), 0);
    walk_ = 1;
  }
  uint64_t work = 0;
  for (size_t i = 0; i < trie_->slices().size(); ++i) {
    const TokenTrie::Slice& slice = trie_->slices()[i];
    if (slice.longest > 0 &&
        recognizer_.begins_all(state, slice_words_[i].words, slice_words_[i].once, slice.longest)) {
      mask->add(slice.mask);
    } else if (!walk(slice, state, text, *mask, work)) {
      return nullptr;
    }
  }
  masks_.push_front({state, mask});
  mask_of_[state] = masks_.begin();
  while (masks_.size() > 1 && masks_.size() * mask->bytes() > options_.mask_bytes) {
    mask_of_.erase(masks_.back().state);
    masks_.pop_back();
  }
  return mask;
}

void CompiledGrammar::forget() {
  recognizer_.forget();
  masks_.clear();
  mask_of_.clear();
  visited_.clear();
  ++epoch_;
}

void CompiledGrammar::make_room() {
  recognizer_.regex().allow_more_questions();
  if (recognizer_.bytes() > bytes_at_first_ + options_.automaton_bytes) forget();
}

Matcher::Matcher(std::shared_ptr<CompiledGrammar> grammar) : grammar_(std::move(grammar)) {
  const std::lock_guard lock(grammar_->mutex_);
  epoch_ = grammar_->epoch_;
  state_ = grammar_->recognizer_.start();
}

void Matcher::catch_up() const {
  if (epoch_ == grammar_->epoch_) return;
  epoch_ = grammar_->epoch_;
  state_ = grammar_->recognizer_.start();
  for (size_t i = 0; i < text_.size(); ++i) {
    state_ = grammar_->exact_step(state_, std::string_view(text_).substr(0, i + 1),
                                  static_cast<uint8_t>(text_[i]));
  }
}

bool Matcher::allows(TokenId token) const {
  const std::lock_guard lock(grammar_->mutex_);
  const std::string_view bytes = grammar_->trie_->bytes_of(token);
  grammar_->make_room();
  catch_up();
  if (bytes.empty() || failed_) return false;
  const bool allowed = grammar_->exactly_allowed(state_, text_, bytes);
  if (grammar_->recognizer_.failed()) {
    failed_ = true;
    grammar_->forget();
  }
  return allowed && !failed_;
}

const TokenMask* Matcher::mask() {
  const std::lock_guard lock(grammar_->mutex_);
  grammar_->make_room();
  catch_up();
  if (!failed_ && mask_ == nullptr) mask_ = grammar_->make_mask(state_, text_);
  if (!failed_ && mask_ == nullptr) {  // the others who share the grammar start afresh
    failed_ = true;
    grammar_->forget();
  }
  return mask_.get();
}

bool Matcher::advance(TokenId token) {
  const std::string_view bytes = grammar_->trie_->bytes_of(token);
  return !bytes.empty() && advance_bytes(bytes);
}

bool Matcher::advance_bytes(std::string_view bytes) {
  const std::lock_guard lock(grammar_->mutex_);
  grammar_->make_room();
  catch_up();
  const size_t before = text_.size();
  StateId state = state_;
  for (const char c : bytes) {
    text_ += c;
    state = grammar_->exact_step(state, text_, static_cast<uint8_t>(c));
    if (state != kDeadState) continue;
    text_.resize(before);
    if (grammar_->recognizer_.failed()) {
      failed_ = true;
      grammar_->forget();
    }
    return false;
  }
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

}  // namespace skein::grammar
