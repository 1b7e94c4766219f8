// Runs the steps of a pre-tokenizer over a stretch of text and hands the words on.
#pragma once

#include <span>
#include <string_view>

#include "base/status.h"
#include "text/tokenizer_spec.h"

namespace skein {

// A reference to a callable that outlives the call it is given to.
class WordSink {
 public:
  template <class Take>
  WordSink(const Take& take)  // NOLINT: implicit by design
      : context_(&take), call_([](const void* context, std::string_view word) {
          (*static_cast<const Take*>(context))(word);
        }) {}
  void operator()(std::string_view word) const { call_(context_, word); }

 private:
  const void* context_;
  void (*call_)(const void*, std::string_view);
};

// The number of steps is bounded, since they nest.
Status check_pre_tokenizer(std::span<const PreTokenizerStep> steps);

// `is_first`: the stretch begins where the whole text begins. Words are never empty.
void pre_tokenize(std::span<const PreTokenizerStep> steps, std::string_view text, bool is_first,
                  WordSink take);

}  // namespace skein
