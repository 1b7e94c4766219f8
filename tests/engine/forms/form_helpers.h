// Forms over a vocabulary of single bytes, as the tests of sampling and of the cache use them.
#pragma once

#include <gtest/gtest.h>
#include <memory>
#include <string>
#include <vector>

#include "engine/forms/form_cache.h"
#include "engine/tiny_model.h"
#include "text/tokenizer_json.h"

namespace skein::testing {

inline Tokenizer byte_tokenizer() {
  auto spec = parse_tokenizer_json(tiny_tokenizer());
  EXPECT_TRUE(spec.ok()) << spec.message();
  auto tokenizer = Tokenizer::create(std::move(*spec));
  EXPECT_TRUE(tokenizer.ok()) << tokenizer.message();
  return std::move(*tokenizer);
}

inline FormSpec regex_form(std::string text) {
  return {.kind = FormSpec::Kind::kRegex, .text = std::move(text)};
}
inline FormSpec schema_form(std::string text, bool strict = false) {
  return {.kind = FormSpec::Kind::kJsonSchema, .text = std::move(text), .strict = strict};
}

// The tiny model's vocabulary: bytes, and two control tokens.
class FormTest : public ::testing::Test {
 protected:
  std::shared_ptr<const Form> form(const FormSpec& spec) {
    EXPECT_TRUE(cache_.prepare().ok());
    auto form = cache_.compile(spec);
    EXPECT_TRUE(form.ok()) << form.error().message;
    return form.ok() ? *form : nullptr;
  }

  const Tokenizer tokenizer_ = byte_tokenizer();
  FormCache cache_{tokenizer_, kTinyTokens};
};

}  // namespace skein::testing
