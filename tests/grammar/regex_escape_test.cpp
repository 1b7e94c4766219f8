// Expressions inside JSON strings, against texts that are escaped one by one.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include "base/rng.h"
#include "grammar/regex.h"

namespace skein::grammar {
namespace {

std::string spelled(std::string_view text) {
  std::string out;
  for (const char c : text) {
    switch (c) {
      case '"':
        out += "\\\"";
        break;
      case '\\':
        out += "\\\\";
        break;
      case '\n':
        out += "\\n";
        break;
      default:
        out += static_cast<uint8_t>(c) < 0x20 ? fmt::format("\\u{:04x}", static_cast<uint8_t>(c))
                                              : std::string(1, c);
    }
  }
  return out;
}

class Expressions {
 public:
  explicit Expressions(uint64_t seed) : rng_(seed) {}

  std::string text() {
    std::string out;
    for (uint64_t n = rng_.below(6); n > 0; --n) out.push_back(letter());
    return out;
  }
  ExprId any(RegexStore& store, int depth) {
    switch (rng_.below(depth > 0 ? 8 : 3)) {
      case 0:
        return store.literal(text());
      case 1:
        return store.byte_class(ByteSet::of(text()) | ByteSet::of("\n"));
      case 2:
        return rng_.chance(1, 3) ? kAnything : store.byte(letter());
      case 3:
        return store.either(any(store, depth - 1), any(store, depth - 1));
      case 4:
        return store.both(any(store, depth - 1), any(store, depth - 1));
      case 5:
        return store.negation(any(store, depth - 1));
      case 6:
        return store.repeat(any(store, depth - 1), static_cast<uint32_t>(rng_.below(2)),
                            1 + static_cast<uint32_t>(rng_.below(4)));
      default:
        return store.concat(any(store, depth - 1), any(store, depth - 1));
    }
  }

 private:
  char letter() { return std::string_view("ab\"\\\n\x01\xC3")[rng_.below(7)]; }
  Rng rng_;
};

TEST(RegexEscape, ASpellingMatchesWhereItsTextDoes) {
  size_t matched = 0;
  for (uint64_t seed = 0; seed < 400; ++seed) {
    Expressions random(seed);
    RegexStore store;
    const ExprId plain = random.any(store, 4);
    const ExprId escaped = store.json_escaped(plain);
    for (int i = 0; i < 40; ++i) {
      const std::string text = random.text();
      const bool matches = store.matches(plain, text);
      EXPECT_EQ(store.matches(escaped, spelled(text)), matches) << seed << ": " << spelled(text);
      matched += matches ? 1 : 0;
    }
    // What is no spelling of anything never matches.
    for (const char* wrong : {"\"", "\\", "\n", "a\\u000a", "\\q", "\\u0061"}) {
      EXPECT_FALSE(store.matches(escaped, wrong)) << seed << ": " << wrong;
    }
  }
  EXPECT_GT(matched, 1000U);
}

TEST(RegexEscape, AFullStoreGivesNothing) {
  RegexStore store(40);
  ExprId e = kEmptyText;
  for (int i = 0; i < 20; ++i) e = store.concat(store.byte('\n'), store.either(e, store.byte('a')));
  EXPECT_EQ(store.json_escaped(e), kNothing);
}

}  // namespace
}  // namespace skein::grammar
