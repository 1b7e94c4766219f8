// A regular expression as it is written, and how the tree becomes an expression.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "grammar/regex.h"

namespace skein::grammar {

// A pattern as a tree. Only nodes with an anchor or a look-ahead inside (`special`) are compiled
// with what follows them; the others are expressions of their own.
struct PatternNode {
  enum class Kind : uint8_t {
    kEmpty,
    kChars,
    kConcat,
    kOr,
    kRepeat,
    kBegin,
    kEnd,
    kAhead,
    kNotAhead
  };
  Kind kind = Kind::kEmpty;
  bool special = false;
  ExprId chars = kNothing;
  uint32_t lo = 0, hi = 0;
  std::vector<std::unique_ptr<PatternNode>> parts;
};
using PatternPtr = std::unique_ptr<PatternNode>;

class PatternCompiler {
 public:
  explicit PatternCompiler(RegexStore& store) : store_(store) {}
  // Compiles a tree from its end: `rest` is every text that may follow.
  ExprId compile(const PatternNode& node, ExprId rest, bool at_begin);
  bool refused() const { return refused_; }  // a ^ that stands behind something optional

 private:
  ExprId sequence(const PatternNode& node, ExprId rest, bool at_begin);
  ExprId plain(const PatternNode& node);

  RegexStore& store_;
  bool refused_ = false;
};

}  // namespace skein::grammar
