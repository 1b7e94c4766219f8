// A GBNF grammar: read, compile, then follow what it allows. Nothing may come of it but an error
// with a code, and what a mask allows must be taken.
#include <cstdint>
#include <string_view>

#include "form_walk.h"
#include "grammar/gbnf.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::string_view input(reinterpret_cast<const char*>(data), size);
  auto rules = skein::grammar::gbnf_rules(input);
  if (rules.ok()) skein::fuzz::walk_form(std::move(*rules), input);
  return 0;
}
