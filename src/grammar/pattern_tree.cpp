#include "grammar/pattern_tree.h"

#include <algorithm>

namespace skein::grammar {
namespace {

// Whether the node takes no characters at all, so that what follows still stands at the begin.
bool no_width(const PatternNode& node) {
  using Kind = PatternNode::Kind;
  switch (node.kind) {
    case Kind::kBegin:
    case Kind::kEnd:
    case Kind::kAhead:
    case Kind::kNotAhead:
    case Kind::kEmpty:
      return true;
    case Kind::kConcat:
    case Kind::kOr:
      return std::all_of(node.parts.begin(), node.parts.end(),
                         [](const PatternPtr& part) { return no_width(*part); });
    default:
      return false;
  }
}

bool has_begin(const PatternNode& node) {
  if (!node.special) return false;
  return node.kind == PatternNode::Kind::kBegin ||
         std::any_of(node.parts.begin(), node.parts.end(),
                     [](const PatternPtr& part) { return has_begin(*part); });
}

}  // namespace

ExprId PatternCompiler::compile(const PatternNode& node, ExprId rest, bool at_begin) {
  using Kind = PatternNode::Kind;
  if (!node.special) return store_.concat(plain(node), rest);
  switch (node.kind) {
    case Kind::kOr: {
      std::vector<ExprId> parts;
      for (const PatternPtr& part : node.parts) parts.push_back(compile(*part, rest, at_begin));
      return store_.either(std::move(parts));
    }
    case Kind::kConcat:
      return sequence(node, rest, at_begin);
    case Kind::kBegin:
      return at_begin ? rest : kNothing;
    case Kind::kEnd:
      return store_.nullable(rest) ? kEmptyText : kNothing;
    case Kind::kAhead:
      return store_.both(rest, compile(*node.parts[0], kAnything, at_begin));
    case Kind::kNotAhead:
      return store_.both(rest, store_.negation(compile(*node.parts[0], kAnything, at_begin)));
    default:
      return kNothing;  // a repetition is never special
  }
}

ExprId PatternCompiler::sequence(const PatternNode& node, ExprId rest, bool at_begin) {
  std::vector<bool> begins(node.parts.size());
  bool still = at_begin, maybe = at_begin;  // maybe: only if what stands in front is left out
  for (size_t i = 0; i < node.parts.size(); ++i) {
    begins[i] = still;
    const PatternNode& part = *node.parts[i];
    if (!still && maybe && has_begin(part)) refused_ = true;
    if (no_width(part)) continue;
    still = false;
    maybe = maybe && (part.special || store_.nullable(plain(part)));
  }
  for (size_t i = node.parts.size(); i-- > 0;) rest = compile(*node.parts[i], rest, begins[i]);
  return rest;
}

ExprId PatternCompiler::plain(const PatternNode& node) {
  using Kind = PatternNode::Kind;
  switch (node.kind) {
    case Kind::kChars:
      return node.chars;
    case Kind::kRepeat:
      return store_.repeat(plain(*node.parts[0]), node.lo, node.hi);
    case Kind::kConcat:
    case Kind::kOr: {
      std::vector<ExprId> parts;
      for (const PatternPtr& part : node.parts) parts.push_back(plain(*part));
      return node.kind == Kind::kOr ? store_.either(std::move(parts)) : store_.concat(parts);
    }
    default:
      return kEmptyText;
  }
}

}  // namespace skein::grammar
