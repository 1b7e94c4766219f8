// The parsed form of a template. Plain data: the parser makes it, the interpreter reads it.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "text/jinja/value.h"

namespace skein::jinja {

using Symbol = uint32_t;  // an interned variable name

enum class ExprKind : uint8_t {
  kLiteral,
  kName,
  kList,
  kTuple,
  kDict,  // children: key, value, key, value, ...
  kNot,
  kNegate,
  kPlus,
  kBinary,  // op, two children
  kAnd,
  kOr,
  kCompare,  // children[0], then one operand per entry of `ops`
  kConcat,
  kCondition,        // test, then, else (may be null)
  kAttribute,        // children[0].text
  kItem,             // children[0][children[1]]
  kSlice,            // children[0][1:2:3], each may be null
  kCall,             // children[0](call)
  kFilter,           // children[0] | text(call); a null child is the input of a filter block
  kTest,             // children[0] is text(call)
  kNamespaceTarget,  // {% set name.text = %}
};

enum class Op : uint8_t {
  kAdd,
  kSubtract,
  kMultiply,
  kDivide,
  kFloorDivide,
  kModulo,
  kPower,
  kEqual,
  kNotEqual,
  kLess,
  kLessEqual,
  kGreater,
  kGreaterEqual,
  kIn,
  kNotIn,
};

struct Expr;
using ExprPtr = std::unique_ptr<Expr>;

struct CallSyntax {
  std::vector<ExprPtr> positional;
  std::vector<std::pair<std::string, ExprPtr>> keywords;
  ExprPtr star;         // *args
  ExprPtr double_star;  // **kwargs
};

using Literal = std::variant<std::monostate, bool, int64_t, double, std::string>;

struct Expr {
  ExprKind kind = ExprKind::kLiteral;
  Op op = Op::kAdd;
  int line = 0;
  Symbol symbol = 0;               // kName, kNamespaceTarget
  std::string text;                // names of attributes, filters and tests
  const Native* native = nullptr;  // the filter or test; null when there is none of that name
  Literal literal;
  uint32_t string_index = 0;  // of a string literal, below Program::strings
  uint16_t height = 1;        // of the tree below and with this node
  std::vector<ExprPtr> children;
  std::vector<Op> ops;
  std::unique_ptr<CallSyntax> call;
};

struct Stmt;
using Body = std::vector<std::unique_ptr<Stmt>>;

enum class StmtKind : uint8_t {
  kText,
  kPrint,
  kIf,
  kFor,
  kSet,
  kSetBlock,
  kMacro,
  kCallBlock,
  kFilterBlock,
  kWith,
  kScope,  // {% generation %}
  kBreak,
  kContinue,
};

struct MacroSyntax {
  std::string name;
  std::vector<std::pair<Symbol, std::string>> parameters;
  std::vector<ExprPtr> defaults;  // of the last parameters
  bool uses_caller = false;
  bool uses_kwargs = false;
  bool uses_varargs = false;
  Body body;
};

struct Branch {
  ExprPtr test;
  Body body;
};

struct Stmt {
  StmtKind kind = StmtKind::kText;
  int line = 0;
  std::string text;
  Symbol symbol = 0;             // kMacro
  bool recursive = false;        // kFor
  ExprPtr target;                // kFor, kSet, kSetBlock
  ExprPtr value;                 // kPrint, kSet, kFor (what it runs over), kCallBlock (the call)
  ExprPtr filter;                // kFor (its if), kSetBlock, kFilterBlock
  std::vector<Branch> branches;  // kIf
  std::vector<std::pair<ExprPtr, ExprPtr>> bindings;  // kWith
  std::unique_ptr<MacroSyntax> macro;                 // kMacro, kCallBlock
  Body body;
  Body otherwise;  // the else of kIf and kFor
};

// A whole template. The tree is at most kMaxNesting deep, so walking it recursively is safe.
struct Program {
  static constexpr int kMaxNesting = 200;

  Body body;
  std::vector<std::string> names;  // by symbol
  std::map<std::string, Symbol, std::less<>> symbols;
  uint32_t strings = 0;  // how many string literals there are
};

}  // namespace skein::jinja
