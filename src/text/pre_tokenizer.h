// Runs the steps of a pre-tokenizer over a stretch of text and hands the words on.
#pragma once

#include <span>
#include <string_view>

#include "base/function_ref.h"
#include "base/status.h"
#include "text/tokenizer_spec.h"

namespace skein {

using WordSink = FunctionRef<void(std::string_view word)>;

// The number of steps is bounded, since they nest.
Status check_pre_tokenizer(std::span<const PreTokenizerStep> steps);

// `is_first`: the stretch begins where the whole text begins. Words are never empty.
void pre_tokenize(std::span<const PreTokenizerStep> steps, std::string_view text, bool is_first,
                  WordSink take);

}  // namespace skein
