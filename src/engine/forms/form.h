// A form, compiled for a model's vocabulary.
#pragma once

#include <cstdint>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "engine/forms/form_spec.h"
#include "engine/loop/snapshot.h"
#include "grammar/compiled_grammar.h"
#include "grammar/form_error.h"

namespace skein {

static_assert(FormCounts::kCodes == static_cast<size_t>(grammar::FormCode::kTooComplex) + 1);

// What the forms of one model have cost so far. Any thread.
class FormMeter {
 public:
  void add_mask(uint64_t ns) {
    const std::lock_guard lock(mutex_);
    counts_.mask_ns.add(ns);
  }
  void add_compile(uint64_t us) {
    const std::lock_guard lock(mutex_);
    ++counts_.misses;
    counts_.compile_us.add(us);
  }
  void add_hit() {
    const std::lock_guard lock(mutex_);
    ++counts_.hits;
  }
  void add_refused(grammar::FormCode code) {
    const std::lock_guard lock(mutex_);
    ++counts_.refused[static_cast<size_t>(code)];
  }
  FormCounts counts() const {
    const std::lock_guard lock(mutex_);
    return counts_;
  }

 private:
  mutable std::mutex mutex_;
  FormCounts counts_;
};

// How a thought is told in an answer's tokens, for requests that say how long it may be.
struct ThoughtMarkers {
  bool open = false;                         // the prompt has opened one
  TokenId begin = kNoToken, end = kNoToken;  // where they are tokens of their own
  std::string begin_text = {};  // what comes before `begin`, or the marker where it is no token
  std::string end_text = {};    // the marker, where it is no token
  std::vector<TokenId> end_ids = {};  // what is written to end one
};

// Any number of requests share one; each has a place in it of its own (form_place.h).
struct Form {
  std::shared_ptr<grammar::CompiledGrammar> grammar;
  std::vector<std::string> relaxed = {};       // JSON pointers of keywords that are not enforced
  bool strips_leading_space = false;           // the model's text loses a space that it begins with
  std::optional<ThoughtMarkers> thought = {};  // where the form has one
  std::shared_ptr<FormMeter> meter = std::make_shared<FormMeter>();
};

}  // namespace skein
