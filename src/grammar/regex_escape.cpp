// Expressions as they stand inside a JSON string.
#include <algorithm>
#include <fmt/format.h>
#include <unordered_map>

#include "grammar/regex.h"

namespace skein::grammar {
namespace {

// Bytes that a JSON string cannot have as they are, each with its one spelling.
std::string escape_of(uint8_t byte) {
  constexpr std::string_view from = "\"\\\b\f\n\r\t", to = "\"\\bfnrt";
  const size_t at = from.find(static_cast<char>(byte));
  if (at != std::string_view::npos) return {'\\', to[at]};
  return fmt::format("\\u{:04x}", byte);
}

const ByteSet& plain_bytes() {
  static const ByteSet set = ByteSet::range(0x20, 0xFF) & ByteSet::of("\"\\").complement();
  return set;
}

}  // namespace

ExprId RegexStore::escaped_class(const ByteSet& bytes) {
  const ByteSet set = bytes;  // it may be one of the store's, where more are made meanwhile
  std::vector<ExprId> parts;
  if (const ByteSet plain = set & plain_bytes(); !plain.empty()) parts.push_back(byte_class(plain));
  for (uint32_t b = 0; b < 0x60; ++b) {
    const auto byte = static_cast<uint8_t>(b);
    if (set.has(byte) && !plain_bytes().has(byte)) parts.push_back(literal(escape_of(byte)));
  }
  return either(std::move(parts));
}

// A byte has one spelling, so what holds of texts holds of their spellings: an intersection is one
// of spellings, and a complement is what else is spelled well.
ExprId RegexStore::json_escaped(ExprId whole) {
  const ExprId any = repeat(escaped_class(ByteSet::all()), 0, kUnbounded);
  std::unordered_map<ExprId, ExprId> done = {
      {kNothing, kNothing}, {kEmptyText, kEmptyText}, {kAnything, any}};
  const auto make = [&](ExprId e, const Node& node, const std::vector<ExprId>& inner) -> ExprId {
    switch (node.kind) {
      case Kind::kClass:
        return escaped_class(sets_[node.a]);
      case Kind::kLiteral: {
        std::string spelled;
        for (const char c : text_.substr(node.a, node.b)) {
          const auto byte = static_cast<uint8_t>(c);
          spelled += plain_bytes().has(byte) ? std::string(1, c) : escape_of(byte);
        }
        return literal(spelled);
      }
      case Kind::kConcat:
        return concat(inner[0], inner[1]);
      case Kind::kOr:
        return either(inner);
      case Kind::kAnd:
        return both(inner);
      case Kind::kNot:
        return both(any, negation(inner[0]));
      case Kind::kRepeat:
        return repeat(inner[0], node.b, node.c);
      default:
        return e;  // digits
    }
  };
  std::vector<ExprId> waiting = {whole};
  while (!waiting.empty() && !full()) {
    const ExprId e = waiting.back();
    if (done.contains(e)) {
      waiting.pop_back();
      continue;
    }
    const Node node = nodes_[e];
    std::vector<ExprId> parts;
    if (node.kind == Kind::kConcat) parts = {node.a, node.b};
    if (node.kind == Kind::kNot || node.kind == Kind::kRepeat) parts = {node.a};
    if (node.kind == Kind::kOr || node.kind == Kind::kAnd) {
      const auto items = list(node);
      parts.assign(items.begin(), items.end());
    }
    const size_t before = waiting.size();
    for (const ExprId part : parts) {
      if (!done.contains(part)) waiting.push_back(part);
    }
    if (waiting.size() > before) continue;
    for (ExprId& part : parts) part = done.at(part);
    done.emplace(e, make(e, node, parts));
    waiting.pop_back();
  }
  return full() ? kNothing : done.at(whole);
}

}  // namespace skein::grammar
