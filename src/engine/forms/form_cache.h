// FormCache: the forms of one model, compiled for its vocabulary and kept for those who ask for the
// same again.
//
// The vocabulary's tries are made when the first form is asked for: most models never need them.
// Forms that nobody holds any more are kept up to a number of bytes, the least recently used go
// first; how many bytes all live ones may hold is bounded, too. Any thread may call any member;
// what is compiled is compiled on the caller's.
#pragma once

#include <atomic>
#include <cstdint>
#include <list>
#include <memory>
#include <mutex>
#include <string>
#include <unordered_map>

#include "base/status.h"
#include "engine/forms/form.h"
#include "grammar/token_trie.h"
#include "text/tokenizer.h"

namespace skein {

struct FormLimits {
  uint64_t cache_bytes = uint64_t{64} << 20;
  uint32_t cached_forms = 256;
  uint64_t live_bytes = uint64_t{512} << 20;  // of forms that are cached or that requests hold
  // What the automaton and the masks of one form may take; together they are what it is charged.
  uint64_t automaton_bytes = uint64_t{3} << 19;
  uint64_t mask_bytes = uint64_t{1} << 19;
};

class FormCache {
 public:
  // `tokenizer` outlives it; ids from `vocab` on cannot be drawn.
  FormCache(const Tokenizer& tokenizer, uint32_t vocab, const FormLimits& limits = {});
  ~FormCache();

  // To be asked before compile(). kUnimplemented where the vocabulary cannot write every text,
  // kResourceExhausted while the live forms hold all that they may.
  Status prepare();
  // The form that was compiled for the same words before, or a new one; or why it is refused. Only
  // after prepare().
  grammar::FormResult<std::shared_ptr<const Form>> compile(const FormSpec& spec);

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
  grammar::FormResult<Compiled> make(const FormSpec& spec) const;
  std::shared_ptr<const Form> find(const std::string& key);
  std::shared_ptr<const Form> keep(std::string key, Compiled compiled);
  void drop_oldest();

  const Tokenizer& tokenizer_;
  const uint32_t vocab_;
  const FormLimits limits_;
  const std::shared_ptr<FormMeter> meter_ = std::make_shared<FormMeter>();
  const std::shared_ptr<std::atomic<uint64_t>> live_bytes_ =
      std::make_shared<std::atomic<uint64_t>>(0);

  mutable std::mutex mutex_;
  std::shared_ptr<const grammar::TokenTrie> trie_;
  std::atomic<uint64_t> trie_bytes_ = 0;
  std::list<Entry> entries_;  // the most recently used first
  std::unordered_map<std::string_view, std::list<Entry>::iterator> by_key_;
  uint64_t cached_bytes_ = 0;
};

// The rules of a form before they meet a vocabulary, and what of a schema they do not enforce.
struct FormRules {
  grammar::Rules rules;
  std::vector<std::string> relaxed = {};
};
grammar::FormResult<FormRules> rules_of(const FormSpec& spec);

}  // namespace skein
