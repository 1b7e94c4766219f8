#include "engine/forms/form_cache.h"

#include <chrono>
#include <utility>

#include "base/resources.h"
#include "grammar/choice.h"
#include "grammar/gbnf.h"
#include "grammar/json_schema.h"
#include "grammar/lark.h"

namespace skein {
namespace {

using grammar::FormResult;
using grammar::Rules;

// What is larger than that takes too long to give back for a thread that others wait for.
constexpr uint64_t kSmallForm = uint64_t{1} << 16;

// What a grammar holds before its automaton grows.
uint64_t rules_bytes(const Rules& rules) {
  uint64_t bytes = rules.regex->bytes() + rules.terminals.size() * sizeof(grammar::Terminal);
  for (const auto& productions : rules.rules) {
    bytes += sizeof(productions);  // NOLINT(bugprone-sizeof-container): and then what it holds
    for (const grammar::Production& production : productions) {
      bytes += sizeof(production) + production.symbols.size() * sizeof(grammar::Symbol);
    }
  }
  return bytes;
}

// A form on its tenant's account, until it is gone.
class HeldForm {
 public:
  HeldForm(std::shared_ptr<const Form> form, std::shared_ptr<LiveForms> live, uint64_t tenant,
           uint64_t bytes)
      : form_(std::move(form)), live_(std::move(live)), tenant_(tenant), bytes_(bytes) {
    live_->add(tenant_, bytes_);
  }
  ~HeldForm() {
    form_.reset();
    live_->remove(tenant_, bytes_);
  }
  HeldForm(const HeldForm&) = delete;
  HeldForm& operator=(const HeldForm&) = delete;

 private:
  std::shared_ptr<const Form> form_;
  const std::shared_ptr<LiveForms> live_;
  const uint64_t tenant_, bytes_;
};

FormResult<FormRules> plain(FormResult<Rules> rules) {
  if (!rules.ok()) return rules.error();
  return FormRules{std::move(rules).value()};
}

FormResult<FormRules> schema(std::string_view text, const FormSpec& spec) {
  auto read = grammar::json_schema_rules(
      text, {.strict = spec.strict, .open = spec.open, .white_space = spec.white_space});
  if (!read.ok()) return read.error();
  return FormRules{std::move(read->rules), std::move(read->relaxed)};
}

}  // namespace

// Fields are told apart by their lengths, so no text can be mistaken for another form's.
std::string key_of(const FormSpec& spec) {
  std::string key;
  key.push_back(static_cast<char>(spec.kind));
  key.push_back(static_cast<char>(spec.strict));
  key.push_back(static_cast<char>(spec.open));
  key.push_back(static_cast<char>(spec.white_space.has_value()));
  const std::string white_space = spec.white_space.value_or("");
  key.append(std::to_string(white_space.size())).append(":").append(white_space);
  for (const std::string& choice : spec.choices) {
    key.append(std::to_string(choice.size())).append(":").append(choice);
  }
  return key.append("|").append(spec.text);
}

FormResult<FormRules> rules_of(const FormSpec& spec, const grammar::ControlTokens& controls) {
  switch (spec.kind) {
    case FormSpec::Kind::kJsonObject:
      return schema(R"({"type":"object"})", spec);
    case FormSpec::Kind::kJsonSchema:
      return schema(spec.text, spec);
    case FormSpec::Kind::kRegex:
      return plain(grammar::regex_rules(spec.text));
    case FormSpec::Kind::kChoice:
      return plain(grammar::choice_rules(spec.choices));
    case FormSpec::Kind::kGbnf:
      return plain(grammar::gbnf_rules(spec.text, controls));
    case FormSpec::Kind::kLark:
      break;
  }
  return plain(grammar::lark_rules(spec.text, controls));
}

FormCache::FormCache(const Tokenizer& tokenizer, uint32_t vocab, const FormLimits& limits,
                     std::vector<TokenId> markers)
    : tokenizer_(tokenizer), vocab_(vocab), limits_(limits), markers_(std::move(markers)) {}

FormCache::~FormCache() {
  by_key_.clear();
  entries_.clear();
  disposal_->stop();
}

void LiveForms::add(uint64_t tenant, uint64_t bytes) {
  const std::lock_guard lock(mutex_);
  by_tenant_[tenant] += bytes;
  bytes_ += bytes;
}

void LiveForms::remove(uint64_t tenant, uint64_t bytes) {
  const std::lock_guard lock(mutex_);
  bytes_ -= bytes;
  const auto found = by_tenant_.find(tenant);
  if ((found->second -= bytes) == 0) by_tenant_.erase(found);
}

uint64_t LiveForms::bytes() const {
  const std::lock_guard lock(mutex_);
  return bytes_;
}

uint64_t LiveForms::bytes_of(uint64_t tenant) const {
  const std::lock_guard lock(mutex_);
  const auto found = by_tenant_.find(tenant);
  return found == by_tenant_.end() ? 0 : found->second;
}

Status FormCache::prepare(uint64_t tenant) {
  if (const uint64_t live = live_->bytes(); live >= limits_.live_bytes) {
    return resource_exhausted("the forms of live requests hold {} bytes, at most {}", live,
                              limits_.live_bytes);
  }
  const uint64_t share = (limits_.live_bytes + 1) / 2;
  if (const uint64_t own = live_->bytes_of(tenant); own >= share) {
    return resource_exhausted("the forms of a tenant's live requests hold {} bytes, at most {}",
                              own, share);
  }
  const std::lock_guard lock(mutex_);
  if (trie_ != nullptr || !vocabulary_.ok()) return vocabulary_;
  std::vector<std::string> tokens;
  tokens.reserve(vocab_);
  for (TokenId id = 0; id < static_cast<TokenId>(vocab_); ++id) {
    tokens.emplace_back(tokenizer_.is_control(id) ? "" : tokenizer_.bytes(id));
  }
  for (const TokenId id : markers_) {
    if (static_cast<uint32_t>(id) < vocab_) tokens[static_cast<size_t>(id)].clear();
  }
  auto trie = grammar::TokenTrie::make(std::move(tokens));
  vocabulary_ = trie.status();
  if (!trie.ok()) return vocabulary_;
  trie_ = std::move(*trie);
  trie_bytes_ = trie_->memory_bytes();
  return {};
}

grammar::ControlTokens FormCache::controls() const {
  return [this](std::string_view name) {
    const TokenId id = tokenizer_.find(name);
    const bool drawn = id != kNoToken && static_cast<uint32_t>(id) < vocab_;
    return drawn && tokenizer_.is_control(id) ? id : kNoToken;
  };
}

FormResult<std::shared_ptr<const Form>> FormCache::compile(const FormSpec& spec, uint64_t tenant) {
  return compile(
      key_of(spec), [&] { return rules_of(spec, controls()); }, tenant);
}

FormResult<std::shared_ptr<const Form>> FormCache::compile(std::string key,
                                                           const MakeRules& make_rules,
                                                           uint64_t tenant) {
  std::promise<std::shared_ptr<const Form>> mine;
  std::shared_future<std::shared_ptr<const Form>> others;
  bool is_first = false;
  {
    const std::lock_guard lock(mutex_);
    if (std::shared_ptr<const Form> known = find(key)) {
      meter_->add_hit();
      return known;
    }
    const auto [at, added] = compiling_.try_emplace(key);
    if (added) at->second = mine.get_future().share();
    is_first = added;
    others = at->second;
  }
  // Somebody is at it. What is refused is refused by everybody's own words.
  if (!is_first) {
    if (std::shared_ptr<const Form> made = others.get()) {
      meter_->add_hit();
      return made;
    }
    return compile_alone(std::move(key), make_rules, tenant);
  }
  // Whatever becomes of it, also when there is no memory: those who wait hear of it, and the next
  // one to ask tries again.
  std::shared_ptr<const Form> form;
  const auto tell = [&] {
    const std::lock_guard lock(mutex_);
    compiling_.erase(key);
    mine.set_value(form);
  };
  try {
    auto made = compile_alone(key, make_rules, tenant);
    if (made.ok()) form = *made;
    tell();
    return made;
  } catch (...) {
    tell();
    throw;
  }
}

FormResult<std::shared_ptr<const Form>> FormCache::compile_alone(std::string key,
                                                                 const MakeRules& make_rules,
                                                                 uint64_t tenant) {
  const auto started = std::chrono::steady_clock::now();
  std::optional<FormResult<Compiled>> made;
  run_apart([&] { made = make(make_rules); });
  FormResult<Compiled>& compiled = *made;
  const std::chrono::duration<double, std::micro> took = std::chrono::steady_clock::now() - started;
  meter_->add_compile(static_cast<uint64_t>(took.count()));
  if (!compiled.ok()) {
    meter_->add_refused(compiled.error().code);
    return compiled.error();
  }
  return keep(std::move(key), std::move(compiled).value(), tenant);
}

FormResult<FormCache::Compiled> FormCache::make(const MakeRules& make_rules) const {
  FormResult<FormRules> rules = make_rules();
  if (!rules.ok()) return rules.error();
  Compiled out{std::make_shared<Form>(), limits_.automaton_bytes + limits_.mask_bytes};
  out.form->relaxed = std::move(rules->relaxed);
  out.form->thought = std::move(rules->thought);
  out.form->meter = meter_;
  out.bytes += rules_bytes(rules->rules);
  auto grammar = grammar::compile(
      std::move(rules->rules), trie_,
      {.automaton_bytes = limits_.automaton_bytes, .mask_bytes = limits_.mask_bytes});
  if (!grammar.ok()) return grammar.error();
  out.form->grammar = std::move(grammar).value();
  out.form->strips_leading_space = tokenizer_.strips_leading_space();
  // Most of what a mask takes is found out with the first one. Here nobody else's steps wait for
  // it; else the first token of its request would be drawn beside them, and those of several
  // requests that wait for the same mask would come back in one step. One that takes too much
  // fails with the token that asks for it.
  (void)grammar::Matcher(out.form->grammar, out.form->strips_leading_space).mask();
  return out;
}

std::shared_ptr<const Form> FormCache::find(const std::string& key) {
  const auto found = by_key_.find(key);
  if (found == by_key_.end()) return nullptr;
  entries_.splice(entries_.begin(), entries_, found->second);
  return found->second->form;
}

// Where two have compiled the same at a time, the first one counts.
std::shared_ptr<const Form> FormCache::keep(std::string key, const Compiled& compiled,
                                            uint64_t tenant) {
  const uint64_t bytes = compiled.bytes + key.size();
  const bool is_large = bytes > limits_.automaton_bytes + limits_.mask_bytes + kSmallForm;
  auto held = std::make_shared<HeldForm>(compiled.form, live_, tenant, bytes);
  std::shared_ptr<const Form> form(
      compiled.form.get(),
      [held, disposal = is_large ? disposal_ : nullptr](const Form*) mutable noexcept {
        if (disposal != nullptr) return disposal->add(std::move(held));
        held.reset();
      });
  held.reset();
  const std::lock_guard lock(mutex_);
  if (const auto found = by_key_.find(key); found != by_key_.end()) return found->second->form;
  if (bytes > limits_.cache_bytes) return form;
  entries_.push_front({std::move(key), form, bytes});
  by_key_.emplace(entries_.front().key, entries_.begin());
  cached_bytes_ += bytes;
  while (cached_bytes_ > limits_.cache_bytes || entries_.size() > limits_.cached_forms) {
    drop_oldest();
  }
  return form;
}

void FormCache::drop_oldest() {
  const Entry& oldest = entries_.back();
  by_key_.erase(oldest.key);
  cached_bytes_ -= oldest.bytes;
  entries_.pop_back();
}

uint64_t FormCache::bytes() const {
  return trie_bytes_.load() + live_->bytes();
}

}  // namespace skein
