// Walks a Program and writes its output. One Interpreter is one render.
#pragma once

#include <string_view>
#include <vector>

#include "base/function_ref.h"
#include "base/status.h"
#include "text/jinja/ast.h"
#include "text/jinja/runtime.h"

namespace skein::jinja {

// The variables of one block; a name that is not here is looked up in the parent. Macros keep the
// scope they were defined in alive.
struct ScopeObject : Object {
  explicit ScopeObject(Ref<ScopeObject> p) : parent(std::move(p)) {}
  void clear() override {
    parent = Ref<ScopeObject>();
    variables.clear();
  }
  Ref<ScopeObject> parent;
  std::vector<std::pair<Symbol, Value>> variables;
};

struct MacroObject : Object {
  MacroObject(const MacroSyntax& s, Ref<ScopeObject> o) : syntax(&s), scope(std::move(o)) {}
  void clear() override { scope = Ref<ScopeObject>(); }
  const MacroSyntax* syntax;
  Ref<ScopeObject> scope;
};

// The `loop` variable. Items are filtered (for x in y if z) only when they are reached, because
// the filter may depend on what the body sets.
struct LoopObject : Object {
  LoopObject(const Stmt& s, Ref<ScopeObject> o, std::vector<Value> v, int64_t d)
      : stmt(&s), scope(std::move(o)), items(std::move(v)), depth0(d) {}
  void clear() override {
    scope = Ref<ScopeObject>();
    items.clear();
    previous = current = peeked = changed = Value();
  }
  const Stmt* stmt;
  Ref<ScopeObject> scope;  // around the loop
  std::vector<Value> items;
  size_t next = 0;        // the first item not looked at
  bool filtered = false;  // the items from `next` on have passed the filter
  int64_t index0 = -1;
  int64_t depth0;
  Value previous;
  Value current;
  bool has_peeked = false;  // `peeked` is the next item
  Value peeked;
  Value changed;  // the arguments of the last loop.changed()
};

class Interpreter {
 public:
  Interpreter(const Program& program, Runtime& rt);

  // Errors are prefixed with "line N: ".
  Result<MarkedText> run(std::vector<std::pair<Symbol, Value>> variables);

 private:
  enum class Flow : uint8_t { kNext, kBreak, kContinue };

  // --- statements ---
  Result<Flow> execute(const Body& body);
  Result<Flow> execute(const Stmt& stmt);
  Result<Flow> execute_if(const Stmt& stmt);
  Result<Flow> execute_for(const Stmt& stmt);
  Result<Flow> execute_with(const Stmt& stmt);
  Result<Flow> execute_scoped(const Body& body);
  Status run_loop(const Stmt& stmt, std::vector<Value> items, int64_t depth0);
  Status print(const Value& value);
  Status set_block(const Stmt& stmt);
  Status filter_block(const Stmt& stmt);
  Status call_block(const Stmt& stmt);
  Status emit(std::string_view bytes, bool from_template);
  Status emit(const MarkedText& text);
  Status emitted(uint64_t held_bytes);
  // The text that is written, as a string.
  Result<Value> capture(FunctionRef<Status()> write);
  Result<Value> capture(const Body& body);
  Status assign(const Expr& target, Value value);
  Status assign_symbol(Symbol symbol, Value value);

  // --- expressions ---
  Result<Value> evaluate(const Expr& expr);
  Result<Value> evaluate_literal(const Expr& expr);
  Result<Value> evaluate_name(const Expr& expr);
  Result<Value> evaluate_items(const Expr& expr);
  Result<Value> evaluate_dict(const Expr& expr);
  Result<Value> evaluate_binary(const Expr& expr);
  Result<Value> evaluate_compare(const Expr& expr);
  Result<Value> evaluate_concat(const Expr& expr);
  Result<Value> evaluate_condition(const Expr& expr);
  Result<Value> evaluate_attribute(const Expr& expr);
  Result<Value> evaluate_item(const Expr& expr);
  Result<Value> evaluate_slice(const Expr& expr);
  Result<Value> evaluate_call(const Expr& expr);
  // `input`: the text that a filter block captured, for the filter without an operand of its own.
  Result<Value> evaluate_filter(const Expr& expr, const Value* input);
  Result<Value> evaluate_test(const Expr& expr);
  Result<Args> evaluate_arguments(const CallSyntax& call);
  Result<Value*> find_variable(Symbol symbol);  // null when there is none
  Result<Value> call(const Value& function, Args& args);
  Result<Value> call_macro(const MacroObject& macro, Args& args);
  Status bind_macro(const MacroObject& macro, Args& args);

  Result<Value> call_loop(const LoopObject& loop, Args& args);
  Result<Value> loop_attribute(const Value& loop, std::string_view name);
  // Moves on to the next item that passes the filter; false at the end.
  Result<bool> pull(LoopObject& loop, Value& item);
  Result<bool> peek(LoopObject& loop);
  Result<int64_t> loop_length(LoopObject& loop);

  // Runs the rest of a block in another scope.
  class ScopeSwitch {
   public:
    ScopeSwitch(Interpreter& interpreter, const Ref<ScopeObject>& parent)
        : interpreter_(interpreter), old_(interpreter.scope_) {
      interpreter.scope_ = interpreter.rt_.heap().make<ScopeObject>(0, parent);
    }
    ScopeSwitch(const ScopeSwitch&) = delete;
    ScopeSwitch& operator=(const ScopeSwitch&) = delete;
    ~ScopeSwitch() { interpreter_.scope_ = old_; }

   private:
    Interpreter& interpreter_;
    Ref<ScopeObject> old_;
  };

  const Program& program_;
  Runtime& rt_;
  Ref<ScopeObject> scope_;
  MarkedText* out_ = nullptr;
  std::vector<Value> strings_;  // of the program's string literals, made when first used
  int line_ = 1;
  Symbol loop_symbol_;
  Symbol caller_symbol_;
  Symbol varargs_symbol_;
  Symbol kwargs_symbol_;
};

}  // namespace skein::jinja
