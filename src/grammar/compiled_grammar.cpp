#include "grammar/compiled_grammar.h"

#include <algorithm>
#include <chrono>
#include <fmt/format.h>
#include <thread>

#include "grammar/json_text.h"

namespace skein::grammar {
namespace {

constexpr uint64_t kTooMuchWork = uint64_t{1} << 48;  // whatever else is allowed
constexpr uint64_t kForgottenBytes = 256;             // that are given back in a unit of work
constexpr uint64_t kPartWork = 16;                    // of a terminal that is looked at by itself
constexpr std::chrono::microseconds kWaitForHurried{1000}, kWaitForOthers{50};

}  // namespace

CompiledGrammar::CompiledGrammar(Rules rules, std::shared_ptr<const TokenTrie> trie,
                                 const GrammarOptions& options)
    : trie_(std::move(trie)),
      options_(options),
      lexer_tokens_(*trie_, *rules.regex, options.limits.mask),
      recognizer_(std::move(rules), options.limits),
      bytes_at_first_(recognizer_.bytes()) {}

FormResult<std::shared_ptr<CompiledGrammar>> compile(Rules rules,
                                                     std::shared_ptr<const TokenTrie> trie,
                                                     const GrammarOptions& options) {
  for (const Terminal& terminal : rules.terminals) {
    if (terminal.token == kNoToken) continue;
    if (terminal.token < 0 || static_cast<uint32_t>(terminal.token) >= trie->size() ||
        !trie->bytes_of(terminal.token).empty()) {
      return FormError{FormCode::kInvalidGrammar,
                       fmt::format("token {} is not a control token", terminal.token), ""};
    }
  }
  FormResult<Rules> finished = finished_rules(std::move(rules));
  if (!finished.ok()) return finished.error();
  auto grammar =
      std::make_shared<CompiledGrammar>(std::move(finished).value(), std::move(trie), options);
  return grammar;
}

// A byte of a real text, which is `text` and `bytes` up to and with that byte: a distinct scalar
// that ends with it is added to what its list has seen.
StateId CompiledGrammar::exact_step(StateId state, std::string_view text, std::string_view bytes,
                                    size_t at, uint64_t& work) {
  const auto byte = static_cast<uint8_t>(bytes[at]);
  const StateId next = recognizer_.step(state, byte);
  work += recognizer_.search_work(state, byte, searched_);
  if (next == kDeadState) return next;
  work += recognizer_.state_cost(next) + recognizer_.search_work(next, searched_);
  if (!recognizer_.pending(next)) return next;
  const std::string scalar = last_scalar_of(text, bytes.substr(0, at + 1));
  const StateId resolved = recognizer_.resolve(next, scalar_spellings(recognizer_.regex(), scalar));
  work += scalar.size() + recognizer_.state_cost(resolved) + recognizer_.seen_count(resolved) +
          recognizer_.search_work(resolved, searched_);
  return resolved;
}

StateId CompiledGrammar::exact_steps(StateId state, std::string_view text, std::string_view bytes,
                                     uint64_t& work) {
  for (size_t i = 0; i < bytes.size() && state != kDeadState; ++i) {
    uint64_t step = 0;
    state = exact_step(state, text, bytes, i, step);
    work += step <= options_.limits.mask ? step : kTooMuchWork;
  }
  return state;
}

void CompiledGrammar::allow(TokenId token, TokenMask& mask) const {
  for (TokenId t = token; t != kNoToken; t = trie_->same_bytes(t)) mask.set(t);
}

// Each of `tokens` is tried alone, without the bytes that are no part of the text. False: it took
// more than a mask may, which has taken `work` already.
bool CompiledGrammar::allow_exact(StateId state, std::string_view text,
                                  std::span<const TokenId> tokens, uint32_t dropped_bytes,
                                  uint64_t work, TokenMask& mask) {
  searched_.begin();
  for (const TokenId token : tokens) {
    const std::string_view bytes = trie_->bytes_of(token).substr(dropped_bytes);
    if (exact_steps(state, text, bytes, work) != kDeadState) allow(token, mask);
    if (work > options_.limits.mask || recognizer_.failed() || late()) return false;
  }
  return true;
}

// As if every mask met its states for the first time. False: it took more than a mask may.
bool CompiledGrammar::charge(StateId state, Making& making) {
  if (met_.first(state)) {
    making.work += recognizer_.state_cost(state) + recognizer_.search_work(state, searched_);
  }
  return making.work <= options_.limits.mask && !recognizer_.failed();
}

// The tokens below the node `from`, which `state` is behind.
bool CompiledGrammar::walk(const std::vector<TokenTrie::Node>& nodes, uint32_t from, StateId state,
                           Making& making) {
  path_.clear();
  path_.push_back({nodes[from].first_child, nodes[from].first_child + nodes[from].children, state,
                   recognizer_.unsure(state)});
  while (!path_.empty()) {
    Level& level = path_.back();
    if (level.next == level.end) {
      path_.pop_back();
      continue;
    }
    const TokenTrie::Node& node = nodes[level.next++];
    const StateId next = recognizer_.step(level.state, node.byte);
    making.work += 1 + recognizer_.search_work(level.state, node.byte, searched_);
    if (making.work > options_.limits.mask) return false;
    if (next == kDeadState && late()) return false;
    if (next == kDeadState) continue;
    if (!charge(next, making)) return false;
    const bool unsure = level.unsure || recognizer_.unsure(next);
    if (node.token != kNoToken && !unsure) allow(node.token, making.mask);
    if (node.token != kNoToken && unsure) making.unsure.push_back(node.token);
    if (node.children > 0) {
      recognizer_.hurry().takes(node.children);
      path_.push_back({node.first_child, node.first_child + node.children, next, unsure});
    }
  }
  return true;
}

bool CompiledGrammar::add_frame(Recognizer::Frame frame, Making& making) {
  const LexerTokens::Entry* entry = lexer_tokens_.of(frame.lexer, recognizer_);
  if (entry == nullptr) return false;
  if (entry->mask != nullptr) making.mask.add(*entry->mask);
  for (const TokenId token : entry->tokens) allow(token, making.mask);
  const std::vector<TokenTrie::Node>& nodes = trie_->levels()[entry->nodes_level].nodes;
  for (const LexerTokens::Ending& ending : entry->endings) {
    const StateId behind = recognizer_.behind(frame.row, ending.step);
    making.work += recognizer_.work_behind();
    if (late()) return false;
    if (behind == kDeadState) continue;
    if (!charge(behind, making)) return false;
    for (const TokenId token : ending.tokens) {
      if (recognizer_.unsure(behind)) {
        making.unsure.push_back(token);
      } else {
        allow(token, making.mask);
      }
    }
    for (const uint32_t node : ending.nodes) {
      if (!walk(nodes, node, behind, making)) return false;
    }
  }
  return making.work <= options_.limits.mask;
}

// Frame by frame and terminal by terminal: the members that an object may still have change with
// every one that it has, but each of them stays what it is. Where one ends in too many places, the
// state is walked as a whole.
bool CompiledGrammar::add_all_frames(Making& making) {
  uint32_t level = 0;
  bool mixed = false;
  parts_.clear();
  for (const Recognizer::Frame& frame : recognizer_.frames(making.state)) {
    if (!recognizer_.hurry().takes(recognizer_.terminals_of(frame.lexer) * kPartWork)) return false;
    recognizer_.split(frame, parts_);
  }
  for (const Recognizer::Frame& frame : parts_) {
    const LexerTokens::Entry* entry = lexer_tokens_.of(frame.lexer, recognizer_);
    if (entry == nullptr) return false;
    making.work += entry->work;
    if (making.work > options_.limits.mask) return false;
    mixed = mixed || entry->mixed;
    level = std::max(level, entry->level);
  }
  if (mixed) {
    making.mask.add(trie_->levels()[level].plain);
    return walk(trie_->levels()[level].nodes, 0, making.state, making);
  }
  return std::all_of(parts_.begin(), parts_.end(),
                     [&](const Recognizer::Frame& frame) { return add_frame(frame, making); });
}

const CompiledGrammar::CachedMask* CompiledGrammar::find_mask(StateId state) {
  const auto found = mask_of_.find(state);
  if (found == mask_of_.end()) return nullptr;
  masks_.splice(masks_.begin(), masks_, found->second);
  return &masks_.front();
}

const CompiledGrammar::CachedMask* CompiledGrammar::mask_of_state(StateId state) {
  if (const CachedMask* known = find_mask(state)) return known;
  auto mask = std::make_shared<TokenMask>(trie_->size());
  met_.begin();
  searched_.begin();
  Making making{state, *mask};
  if (!add_all_frames(making) || recognizer_.failed() || late()) return nullptr;
  std::vector<TokenId> controls;
  recognizer_.add_tokens(state, controls);
  for (const TokenId token : controls) mask->set(token);
  mask->note_free(trie_->all());
  masks_.push_front({state, mask, std::move(making.unsure), making.work});
  mask_of_[state] = masks_.begin();
  mask_bytes_ += masks_.front().bytes();
  while (masks_.size() > 1 && mask_bytes_ > options_.mask_bytes) {
    mask_of_.erase(masks_.back().state);
    mask_bytes_ -= masks_.back().bytes();
    masks_.pop_back();
  }
  return &masks_.front();
}

std::shared_ptr<const TokenMask> CompiledGrammar::make_mask(StateId state, std::string_view text) {
  state = recognizer_.clamped(state, trie_->longest());
  const CachedMask* known = mask_of_state(state);
  if (known == nullptr) return nullptr;
  if (known->unsure.empty()) return known->mask;
  auto mask = std::make_shared<TokenMask>(*known->mask);
  if (!allow_exact(state, text, known->unsure, 0, known->work, *mask)) return nullptr;
  mask->note_free(trie_->all());
  return mask;
}

// At the very beginning, where tokens lose a leading space. Such a mask is needed once a request
// and not kept.
std::shared_ptr<const TokenMask> CompiledGrammar::make_first_mask(StateId state,
                                                                  std::string_view text) {
  const std::shared_ptr<const TokenMask> others = make_mask(state, text);
  if (others == nullptr) return nullptr;
  auto mask = std::make_shared<TokenMask>(*others);
  mask->remove(trie_->leading_space());
  met_.begin();
  searched_.begin();
  Making making{state, *mask};
  const std::vector<TokenTrie::Node>& nodes = trie_->levels()[0].nodes;
  for (uint32_t i = 0; i < nodes[0].children; ++i) {
    const uint32_t child = nodes[0].first_child + i;
    if (nodes[child].byte != ' ') continue;
    if (nodes[child].token != kNoToken) allow(nodes[child].token, *mask);  // no text at all
    if (!walk(nodes, child, state, making)) return nullptr;
  }
  if (!allow_exact(state, text, making.unsure, 1, making.work, *mask)) return nullptr;
  mask->note_free(trie_->all());
  return recognizer_.failed() || late() ? nullptr : mask;
}

void CompiledGrammar::add_place(const std::shared_ptr<Place>& place) {
  if (places_.size() >= places_sweep_) {
    std::erase_if(places_, [](const std::weak_ptr<Place>& one) { return one.expired(); });
    places_sweep_ = places_.size() * 2 + 16;
  }
  places_.push_back(place);
}

void CompiledGrammar::forget() {
  const Unhurried whole(recognizer_.hurry());
  for (const std::weak_ptr<Place>& one : places_) {
    const std::shared_ptr<Place> place = one.lock();
    if (place == nullptr || place->saved != nullptr) continue;
    place->saved = std::make_unique<const Recognizer::Saved>(recognizer_.save(place->state));
  }
  recognizer_.forget();
  lexer_tokens_.forget();
  masks_.clear();
  mask_bytes_ = 0;
  mask_of_.clear();
  met_.forget();
  searched_.forget();
  ++times_forgotten_;
}

HurriedQuestions::HurriedQuestions(CompiledGrammar& grammar, uint64_t work, SharedWork* more)
    : grammar_(grammar), lock_(grammar.mutex_, std::defer_lock) {
  // Others who are in a hurry are soon done, and most forms have several requests in a step. Who is
  // not may take long: there is no point in waiting for more than it takes to say so.
  const auto now = std::chrono::steady_clock::now;
  const auto began = now();
  while (!lock_.try_lock()) {
    const bool soon = grammar_.is_hurried_.load(std::memory_order_relaxed);
    if (now() - began >= (soon ? kWaitForHurried : kWaitForOthers)) return;
    std::this_thread::yield();
  }
  grammar_.is_hurried_.store(true, std::memory_order_relaxed);
  grammar_.recognizer_.hurry().begin(work, more);
}

HurriedQuestions::~HurriedQuestions() {
  if (!lock_.owns_lock()) return;
  grammar_.recognizer_.hurry().end();
  grammar_.is_hurried_.store(false, std::memory_order_relaxed);
}

bool HurriedQuestions::late() const {
  return !lock_.owns_lock() || grammar_.late();
}

void CompiledGrammar::forget_all() {
  const std::lock_guard lock(mutex_);
  forget();
}

// What it holds has to be given back, and what comes next is found out anew: too much for who is in
// a hurry, unless it is small.
bool CompiledGrammar::may_forget() {
  return recognizer_.hurry().takes((recognizer_.bytes() + lexer_tokens_.bytes()) / kForgottenBytes);
}

void CompiledGrammar::make_room() {
  const bool is_full = recognizer_.failed() || recognizer_.bytes() + lexer_tokens_.bytes() >
                                                   bytes_at_first_ + options_.automaton_bytes;
  if (is_full && may_forget()) forget();
}

}  // namespace skein::grammar
