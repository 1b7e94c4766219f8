// FormCache: the forms of one model, compiled for its vocabulary and kept for those who ask for the
// same again.
//
// The vocabulary's tries are made when the first form is asked for: most models never need them.
// Forms that nobody holds any more are kept up to a number of bytes, the least recently used go
// first; how many bytes all live ones may hold is bounded, too. Any thread may call any member;
// what is compiled is compiled on the caller's, and those who ask for the same meanwhile wait for
// it.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <future>
#include <list>
#include <memory>
#include <mutex>
#include <string>
#include <unordered_map>

#include "base/status.h"
#include "engine/forms/form.h"
#include "engine/forms/form_disposal.h"
#include "grammar/token_trie.h"
#include "text/tokenizer.h"

namespace skein {

struct FormLimits {
  uint64_t cache_bytes = uint64_t{64} << 20;
  uint32_t cached_forms = 256;
  // The memory of forms that are cached or that requests hold; a tenant may have half of it.
  uint64_t live_bytes = uint64_t{512} << 20;
  // What the automaton and the masks of one form may take; together they are what it is charged.
  uint64_t automaton_bytes = uint64_t{3} << 19;
  uint64_t mask_bytes = uint64_t{1} << 19;
};

// The rules of a form before they meet a vocabulary, and what of a schema they do not enforce.
struct FormRules {
  grammar::Rules rules;
  std::vector<std::string> relaxed = {};
  std::optional<ThoughtMarkers> thought = {};
};
grammar::FormResult<FormRules> rules_of(const FormSpec& spec,
                                        const grammar::ControlTokens& controls = {});

// Names a form among all: specs that ask for the same have the same key.
std::string key_of(const FormSpec& spec);

// The bytes of the forms that live, in all and by tenant. Any thread; forms may outlive their
// cache.
class LiveForms {
 public:
  void add(uint64_t tenant, uint64_t bytes);
  void remove(uint64_t tenant, uint64_t bytes);
  uint64_t bytes() const;
  uint64_t bytes_of(uint64_t tenant) const;

 private:
  mutable std::mutex mutex_;
  uint64_t bytes_ = 0;
  std::unordered_map<uint64_t, uint64_t> by_tenant_;  // of those that have some
};

class FormCache {
 public:
  // `tokenizer` outlives it; ids from `vocab` on cannot be drawn. `markers` are tokens that no text
  // stands for, beside the control tokens: those that only the model's template writes.
  FormCache(const Tokenizer& tokenizer, uint32_t vocab, const FormLimits& limits = {},
            std::vector<TokenId> markers = {});
  ~FormCache();

  // To be asked before compile(). kUnimplemented where the vocabulary cannot write every text or is
  // too large, kResourceExhausted while the live forms, or those of this tenant, hold all that they
  // may.
  Status prepare(uint64_t tenant = 0);
  // The form that was compiled for the same words before, or a new one, which is on the tenant's
  // account while it lives; or why it is refused. Only after prepare().
  grammar::FormResult<std::shared_ptr<const Form>> compile(const FormSpec& spec,
                                                           uint64_t tenant = 0);
  // Likewise, of rules that the caller makes: equal keys stand for equal rules, and no key is a
  // spec's.
  using MakeRules = std::function<grammar::FormResult<FormRules>()>;
  grammar::FormResult<std::shared_ptr<const Form>> compile(std::string key,
                                                           const MakeRules& make_rules,
                                                           uint64_t tenant = 0);

  // The control tokens that a grammar may name.
  grammar::ControlTokens controls() const;
  FormCounts counts() const { return meter_->counts(); }
  uint64_t bytes() const;  // of the tries and all live forms, at most

 private:
  struct Entry {
    std::string key;
    std::shared_ptr<const Form> form;
    uint64_t bytes = 0;
  };
  struct Compiled {
    std::shared_ptr<Form> form;
    uint64_t bytes = 0;
  };
  grammar::FormResult<Compiled> make(const MakeRules& make_rules) const;
  grammar::FormResult<std::shared_ptr<const Form>> compile_alone(std::string key,
                                                                 const MakeRules& make_rules,
                                                                 uint64_t tenant);
  std::shared_ptr<const Form> find(const std::string& key);  // under mutex_
  std::shared_ptr<const Form> keep(std::string key, const Compiled& compiled, uint64_t tenant);
  void drop_oldest();

  const Tokenizer& tokenizer_;
  const uint32_t vocab_;
  const FormLimits limits_;
  const std::vector<TokenId> markers_;
  const std::shared_ptr<FormMeter> meter_ = std::make_shared<FormMeter>();
  const std::shared_ptr<LiveForms> live_ = std::make_shared<LiveForms>();
  const std::shared_ptr<FormDisposal> disposal_ = std::make_shared<FormDisposal>();

  mutable std::mutex mutex_;
  std::shared_ptr<const grammar::TokenTrie> trie_;
  Status vocabulary_;  // why it can serve no forms, once that is known
  std::atomic<uint64_t> trie_bytes_ = 0;
  std::list<Entry> entries_;  // the most recently used first
  std::unordered_map<std::string_view, std::list<Entry>::iterator> by_key_;
  uint64_t cached_bytes_ = 0;
  // Of those who compile now, for those who ask for the same meanwhile; nullptr: it was refused.
  std::unordered_map<std::string, std::shared_future<std::shared_ptr<const Form>>> compiling_;
};

}  // namespace skein
