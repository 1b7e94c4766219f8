#include "grammar/lexer_tokens.h"

#include <algorithm>
#include <optional>

#include "grammar/char_set.h"
#include "grammar/json_text.h"
#include "grammar/string_tokens.h"

namespace skein::grammar {
namespace {

constexpr size_t kMaxEndings = 64;
constexpr size_t kMaxEndingNodes = 1024;
constexpr size_t kManyTokens = 256;  // from here on a mask is quicker than a list
constexpr size_t kUsualDepth = 64;   // of a walk; few tokens are longer

}  // namespace

LexerTokens::LexerTokens(const TokenTrie& trie, RegexStore& store, uint64_t max_work)
    : trie_(trie), store_(store), max_work_(max_work) {
  const CharSet plain{{0x20, 0x21}, {0x23, 0x5B}, {0x5D, kMaxCodePoint}};
  const ExprId one = one_char(store, plain, Spelling::kUtf8);
  const ExprId name_char = json_char(store);
  for (const TokenTrie::Level& level : trie.levels()) {
    const ExprId inside = level.in_string ? name_char : one;
    words_.push_back({store.repeat(inside, 1, level.longest), store.repeat(inside, 0, kUnbounded)});
  }
  character_ = json_free_char(store);
  quote_ = store.byte('"');
  characters_ = store.repeat(character_, 0, kUnbounded);
  name_characters_ = store.repeat(name_char, 0, kUnbounded);
  string_ = store.concat(characters_, quote_);
  remember_strings();
}

// What string_tokens() found out need not be asked again. A name begins with plain text as a string
// does.
void LexerTokens::remember_strings() {
  if (trie_.json_string() == nullptr) return;
  for (uint32_t level = 1; level <= trie_.json_string()->level; ++level) {
    store_.remember_begins_all(characters_, words_[level].once);
    store_.remember_begins_all(name_characters_, words_[level].once);
    store_.remember_begins_all(string_, words_[level].once);
  }
}

// The rest of a string, of whatever length, needs no walk.
bool LexerTokens::take_string(uint32_t lexer, Recognizer& recognizer, Entry& entry) const {
  const StringTokens* string = trie_.json_string();
  if (string == nullptr) return false;
  const std::optional<RegexStore::Counted> rest = store_.counted(recognizer.only_rest(lexer));
  if (!rest || rest->body != character_ || rest->behind != quote_) return false;
  entry.nodes_level = entry.level = string->level;
  while (trie_.levels()[entry.level].longest > rest->hi) --entry.level;
  // The trie outlives it, so that nothing needs to be owned.
  entry.mask = {std::shared_ptr<const TokenMask>(), string->tokens_within(rest->hi)};
  Ending ending{recognizer.end_of_only(lexer), {}, {}};
  const auto can_end = [&](const StringTokens::Quote& quote) {
    return rest->lo <= quote.characters && quote.characters <= rest->hi;
  };
  for (const StringTokens::Quote& quote : string->tokens) {
    if (can_end(quote)) ending.tokens.push_back(static_cast<TokenId>(quote.at));
  }
  for (const StringTokens::Quote& quote : string->nodes) {
    if (can_end(quote)) ending.nodes.push_back(quote.at);
  }
  entry.endings.push_back(std::move(ending));
  entry.work = string->work;
  return true;
}

uint32_t LexerTokens::level_of(uint32_t lexer, Recognizer& recognizer, uint64_t& work) const {
  const auto takes = [&](uint32_t level) {
    return recognizer.begins_all(lexer, words_[level].some, words_[level].once,
                                 trie_.levels()[level].longest, work);
  };
  if (!takes(1)) return 0;  // most take nothing of this kind
  auto level = static_cast<uint32_t>(words_.size() - 1);
  while (level > 1 && !takes(level)) --level;
  return level;
}

void LexerTokens::add_node(uint32_t index, const Recognizer::LexerStep& step,
                           const Recognizer& recognizer, Entry& entry) const {
  const TokenTrie::Node& node = trie_.levels()[entry.level].nodes[index];
  const bool goes_on = step.lexer != Recognizer::kNone;
  if (node.token != kNoToken && goes_on) entry.tokens.push_back(node.token);
  const bool token_ends = node.token != kNoToken && !goes_on;
  if (step.accepted_count == 0 || (node.children == 0 && !token_ends)) return;
  auto ending = std::find_if(entry.endings.begin(), entry.endings.end(), [&](const Ending& other) {
    return recognizer.same_accepted(other.step, step);
  });
  if (ending == entry.endings.end()) {
    entry.endings.push_back({step, {}, {}});
    ending = entry.endings.end() - 1;
  }
  if (token_ends) ending->tokens.push_back(node.token);
  if (node.children > 0) ending->nodes.push_back(index);
  if (entry.endings.size() > kMaxEndings || ending->nodes.size() > kMaxEndingNodes) {
    entry.mixed = true;
  }
}

// False: it took more than a mask may.
bool LexerTokens::walk(uint32_t lexer, Recognizer& recognizer, Entry& entry) {
  entry.nodes_level = entry.level;
  const std::vector<TokenTrie::Node>& nodes = trie_.levels()[entry.level].nodes;
  met_.begin();
  searched_.begin();
  if (path_.empty()) path_.resize(kUsualDepth);
  size_t depth = 0;
  path_[0] = {nodes[0].first_child, nodes[0].first_child + nodes[0].children, lexer};
  // As if every walk met its lexers, and took its steps, for the first time.
  const auto charge = [&](const Recognizer::LexerStep& step) {
    ++entry.work;
    if (step.searches != kNoSearch) entry.work += recognizer.search_work(step, searched_);
    if (step.lexer != Recognizer::kNone && met_.first(step.lexer)) {
      entry.work += recognizer.lexer_cost(step.lexer);
    }
    return entry.work <= max_work_;
  };
  while (true) {
    Place& place = path_[depth];
    // Most bytes lead nowhere.
    const Recognizer::KnownSteps steps = recognizer.known_steps(place.lexer);
    uint32_t index = place.next;
    while (index != place.end && steps.leads_nowhere(nodes[index].byte)) ++index;
    entry.work += index - place.next;
    place.next = index + 1;
    if (index == place.end) {
      if (depth == 0) break;
      --depth;
      continue;
    }
    const TokenTrie::Node& node = nodes[index];
    const Recognizer::LexerStep* known = steps.find(node.byte);
    const Recognizer::LexerStep step =
        known != nullptr ? *known : recognizer.lexer_step(place.lexer, node.byte);
    const bool lost = known == nullptr && (recognizer.failed() || recognizer.hurry().late());
    if (lost || !charge(step)) return false;
    if (step.accepted_count > 0) {
      add_node(index, step, recognizer, entry);
      if (entry.mixed) return true;
    } else if (step.lexer != Recognizer::kNone && node.token != kNoToken) {
      entry.tokens.push_back(node.token);
    }
    if (step.lexer != Recognizer::kNone && node.children > 0) {
      if (!recognizer.hurry().takes(node.children)) return false;
      if (++depth == path_.size()) path_.resize(2 * depth);
      path_[depth] = {node.first_child, node.first_child + node.children, step.lexer};
    }
  }
  return entry.work <= max_work_ && !recognizer.failed() && !recognizer.hurry().late();
}

void LexerTokens::keep(Entry& entry) const {
  if (entry.mixed) {
    entry.tokens = {};
    entry.endings = {};
    return;
  }
  const TokenMask& plain = trie_.levels()[entry.level].plain;
  if (entry.tokens.size() < kManyTokens) {
    // The trie outlives it, so that nothing needs to be owned.
    if (entry.level > 0) entry.mask = {std::shared_ptr<const TokenMask>(), &plain};
    return;
  }
  auto mask = std::make_shared<TokenMask>(plain);
  for (const TokenId token : entry.tokens) {
    for (TokenId t = token; t != kNoToken; t = trie_.same_bytes(t)) mask->set(t);
  }
  entry.mask = std::move(mask);
  entry.tokens = {};
}

const LexerTokens::Entry* LexerTokens::of(uint32_t lexer, Recognizer& recognizer) {
  if (lexer >= entries_.size()) entries_.resize(recognizer.lexer_count());
  if (entries_[lexer] != nullptr) return entries_[lexer].get();
  auto entry = std::make_unique<Entry>();
  if (!take_string(lexer, recognizer, *entry)) {
    const uint64_t expressions = store_.work();
    entry->level = level_of(lexer, recognizer, entry->work);
    if (!recognizer.hurry().takes(store_.work() - expressions)) return nullptr;
    if (!walk(lexer, recognizer, *entry)) return nullptr;
    keep(*entry);
  }
  bytes_ += sizeof(Entry) + entry->tokens.capacity() * sizeof(TokenId);
  if (entry->mask.use_count() == 1) bytes_ += entry->mask->bytes();
  for (const Ending& ending : entry->endings) {
    bytes_ += sizeof(Ending) + ending.tokens.capacity() * sizeof(TokenId) +
              ending.nodes.capacity() * sizeof(uint32_t);
  }
  entries_[lexer] = std::move(entry);
  return entries_[lexer].get();
}

void LexerTokens::forget() {
  entries_.clear();
  met_.forget();
  searched_.forget();
  bytes_ = 0;
  remember_strings();
}

}  // namespace skein::grammar
