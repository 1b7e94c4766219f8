// Statements, and loops with their `loop` variable.
#include "text/jinja/interpreter.h"

#include <algorithm>

#include "text/jinja/operations.h"

namespace skein::jinja {
namespace {

constexpr Symbol kNoSymbol = UINT32_MAX;

Result<Value> loop_cycle(Runtime&, const Value& self, const Bound& a) {
  const std::vector<Value>& items = a.all().positional;
  if (items.empty()) return invalid_argument("no items for cycling given");
  const auto index = static_cast<size_t>(self.as<LoopObject>().index0);
  return items[index % items.size()];
}

Result<Value> loop_changed(Runtime& rt, const Value& self, const Bound& a) {
  auto& loop = self.as<LoopObject>();
  const Value now = rt.list(a.all().positional, Kind::kTuple);
  SKEIN_ASSIGN(const bool same, equals(rt, loop.changed, now));
  if (same) return Value::boolean(false);
  loop.changed = now;
  return Value::boolean(true);
}

constexpr Native kLoopMethods[] = {{"cycle", loop_cycle, {}, Native::kAnyArguments},
                                   {"changed", loop_changed, {}, Native::kAnyArguments}};
constexpr Native kLoopCall{"loop", nullptr, {"iterable"}, 1};  // of a recursive loop

}  // namespace

Interpreter::Interpreter(const Program& program, Runtime& rt) : program_(program), rt_(rt) {
  const auto symbol = [&](std::string_view name) {
    const auto it = program.symbols.find(name);
    return it == program.symbols.end() ? kNoSymbol : it->second;
  };
  loop_symbol_ = symbol("loop");
  caller_symbol_ = symbol("caller");
  varargs_symbol_ = symbol("varargs");
  kwargs_symbol_ = symbol("kwargs");
  strings_.resize(program.strings);
}

Result<MarkedText> Interpreter::run(std::vector<std::pair<Symbol, Value>> variables) {
  scope_ = rt_.heap().make<ScopeObject>(0, Ref<ScopeObject>());
  scope_->variables = std::move(variables);
  MarkedText out;
  out_ = &out;
  const Result<Flow> flow = execute(program_.body);
  if (!flow.ok()) {
    return Status(flow.status().code(), fmt::format("line {}: {}", line_, flow.message()));
  }
  return out;
}

Status Interpreter::emitted(uint64_t held_bytes) {
  rt_.heap().add_bytes(held_bytes);
  if (out_->size() > rt_.limits().output_bytes) {
    return resource_exhausted("the template writes more than {} bytes", rt_.limits().output_bytes);
  }
  return rt_.spend(1 + held_bytes / 32);
}

Status Interpreter::emit(std::string_view bytes, bool from_template) {
  const uint64_t before = out_->held_bytes();
  out_->append(bytes, from_template);
  return emitted(out_->held_bytes() - before);
}

Status Interpreter::emit(const MarkedText& text) {
  const uint64_t before = out_->held_bytes();
  out_->append(text);
  return emitted(out_->held_bytes() - before);
}

Result<Value> Interpreter::capture(FunctionRef<Status()> write) {
  MarkedText captured;
  MarkedText* const outer = std::exchange(out_, &captured);
  const Status status = write();
  out_ = outer;
  SKEIN_TRY(status);
  rt_.heap().remove_bytes(captured.held_bytes());
  return rt_.string(std::move(captured));
}

Result<Value> Interpreter::capture(const Body& body) {
  return capture([&] { return execute(body).status(); });
}

Result<Interpreter::Flow> Interpreter::execute(const Body& body) {
  for (const auto& stmt : body) {
    SKEIN_ASSIGN(const Flow flow, execute(*stmt));
    if (flow != Flow::kNext) return flow;
  }
  return Flow::kNext;
}

Result<Interpreter::Flow> Interpreter::execute(const Stmt& stmt) {
  const Runtime::Nested nested(rt_);
  SKEIN_TRY(nested.check());
  SKEIN_TRY(rt_.spend(1));
  line_ = stmt.line;
  switch (stmt.kind) {
    case StmtKind::kText:
      SKEIN_TRY(emit(stmt.text, true));
      break;
    case StmtKind::kPrint: {
      SKEIN_ASSIGN(const Value value, evaluate(*stmt.value));
      SKEIN_TRY(print(value));
      break;
    }
    case StmtKind::kIf:
      return execute_if(stmt);
    case StmtKind::kFor:
      return execute_for(stmt);
    case StmtKind::kSet: {
      SKEIN_ASSIGN(Value value, evaluate(*stmt.value));
      SKEIN_TRY(assign(*stmt.target, std::move(value)));
      break;
    }
    case StmtKind::kSetBlock:
      SKEIN_TRY(set_block(stmt));
      break;
    case StmtKind::kMacro:
      SKEIN_TRY(assign_symbol(
          stmt.symbol,
          Value::object(Kind::kMacro, rt_.heap().make<MacroObject>(0, *stmt.macro, scope_))));
      break;
    case StmtKind::kCallBlock:
      SKEIN_TRY(call_block(stmt));
      break;
    case StmtKind::kFilterBlock:
      SKEIN_TRY(filter_block(stmt));
      break;
    case StmtKind::kWith:
      return execute_with(stmt);
    case StmtKind::kScope:
      return execute_scoped(stmt.body);
    case StmtKind::kBreak:
      return Flow::kBreak;
    case StmtKind::kContinue:
      return Flow::kContinue;
  }
  return Flow::kNext;
}

Status Interpreter::print(const Value& value) {
  if (value.is_undefined()) return {};
  if (value.is_string()) return emit(value.text());
  SKEIN_ASSIGN(const MarkedText text, to_text(rt_, value));
  return emit(text);
}

Result<Interpreter::Flow> Interpreter::execute_if(const Stmt& stmt) {
  for (const Branch& branch : stmt.branches) {
    SKEIN_ASSIGN(const Value test, evaluate(*branch.test));
    if (truthy(test)) return execute(branch.body);
  }
  return execute(stmt.otherwise);
}

Result<Interpreter::Flow> Interpreter::execute_scoped(const Body& body) {
  const ScopeSwitch inner(*this, scope_);
  return execute(body);
}

Result<Interpreter::Flow> Interpreter::execute_with(const Stmt& stmt) {
  std::vector<Value> values;
  for (const auto& [target, value] : stmt.bindings) {
    SKEIN_ASSIGN(Value v, evaluate(*value));
    values.push_back(std::move(v));
  }
  const ScopeSwitch inner(*this, scope_);
  for (size_t i = 0; i < values.size(); ++i) {
    SKEIN_TRY(assign(*stmt.bindings[i].first, std::move(values[i])));
  }
  return execute(stmt.body);
}

Result<Interpreter::Flow> Interpreter::execute_for(const Stmt& stmt) {
  SKEIN_ASSIGN(const Value iterable, evaluate(*stmt.value));
  SKEIN_ASSIGN(std::vector<Value> items, iterate(rt_, iterable));
  SKEIN_TRY(run_loop(stmt, std::move(items), 0));
  return Flow::kNext;
}

Status Interpreter::run_loop(const Stmt& stmt, std::vector<Value> items, int64_t depth0) {
  const uint64_t bytes = items.size() * sizeof(Value);
  const Ref<LoopObject> loop =
      rt_.heap().make<LoopObject>(bytes, stmt, scope_, std::move(items), depth0);
  const Value loop_value = Value::object(Kind::kLoop, loop);
  Value item;
  while (true) {
    SKEIN_ASSIGN(const bool more, pull(*loop, item));
    if (!more) break;
    ++loop->index0;
    loop->previous = std::exchange(loop->current, item);
    const ScopeSwitch inner(*this, loop->scope);
    if (loop_symbol_ != kNoSymbol) SKEIN_TRY(assign_symbol(loop_symbol_, loop_value));
    SKEIN_TRY(assign(*stmt.target, std::move(item)));
    SKEIN_ASSIGN(const Flow flow, execute(stmt.body));
    if (flow == Flow::kBreak) break;
  }
  if (loop->index0 >= 0) return {};
  return execute_scoped(stmt.otherwise).status();
}

Status Interpreter::set_block(const Stmt& stmt) {
  Value value;
  {
    const ScopeSwitch inner(*this, scope_);
    SKEIN_ASSIGN(value, capture(stmt.body));
    if (stmt.filter != nullptr) {
      SKEIN_ASSIGN(value, evaluate_filter(*stmt.filter, &value));
    }
  }
  return assign(*stmt.target, std::move(value));
}

Status Interpreter::filter_block(const Stmt& stmt) {
  const ScopeSwitch inner(*this, scope_);
  SKEIN_ASSIGN(const Value captured, capture(stmt.body));
  SKEIN_ASSIGN(const Value value, evaluate_filter(*stmt.filter, &captured));
  return print(value);
}

Status Interpreter::call_block(const Stmt& stmt) {
  const Expr& call_expr = *stmt.value;
  SKEIN_ASSIGN(const Value function, evaluate(*call_expr.children[0]));
  SKEIN_ASSIGN(Args args, evaluate_arguments(*call_expr.call));
  args.keywords.emplace_back(
      MarkedText("caller", true),
      Value::object(Kind::kMacro, rt_.heap().make<MacroObject>(0, *stmt.macro, scope_)));
  SKEIN_ASSIGN(const Value value, call(function, args));
  return print(value);
}

Status Interpreter::assign(const Expr& target, Value value) {
  if (target.kind == ExprKind::kName) return assign_symbol(target.symbol, std::move(value));
  if (target.kind == ExprKind::kNamespaceTarget) {
    SKEIN_ASSIGN(Value * object, find_variable(target.symbol));
    if (object == nullptr || !object->is(Kind::kNamespace)) {
      return invalid_argument("cannot assign attribute on non-namespace object");
    }
    SKEIN_TRY(rt_.spend(target.text.size() / 64));
    auto& attributes = object->as<NamespaceObject>().attributes;
    const auto [it, added] = attributes.insert_or_assign(target.text, std::move(value));
    if (added) {
      rt_.heap().grow(object->as<NamespaceObject>(), kDictEntryBytes + target.text.size());
    }
    return {};
  }
  SKEIN_ASSIGN(const std::vector<Value> parts, iterate(rt_, value));
  if (parts.size() != target.children.size()) {
    return invalid_argument("{} values to unpack, expected {}", parts.size(),
                            target.children.size());
  }
  for (size_t i = 0; i < parts.size(); ++i) SKEIN_TRY(assign(*target.children[i], parts[i]));
  return {};
}

Status Interpreter::assign_symbol(Symbol symbol, Value value) {
  auto& variables = scope_->variables;
  const auto it = std::find_if(variables.begin(), variables.end(),
                               [symbol](const auto& v) { return v.first == symbol; });
  SKEIN_TRY(rt_.spend(variables.size() / 16));
  if (it != variables.end()) {
    it->second = std::move(value);
  } else {
    variables.emplace_back(symbol, std::move(value));
    rt_.heap().grow(*scope_, 2 * sizeof(variables[0]));
  }
  return {};
}

Result<Value> Interpreter::call_loop(const LoopObject& loop, Args& args) {
  if (!loop.stmt->recursive) {
    return invalid_argument("the loop must have the 'recursive' marker to be called recursively");
  }
  const Runtime::Nested nested(rt_);
  SKEIN_TRY(nested.check());
  SKEIN_ASSIGN(const Bound a, bind(kLoopCall, args));
  SKEIN_ASSIGN(std::vector<Value> items, iterate(rt_, a[0]));
  const Stmt& stmt = *loop.stmt;
  const int64_t depth0 = loop.depth0 + 1;
  const Ref<ScopeObject> around = loop.scope;
  return capture([&] {
    const ScopeSwitch inner(*this, around);
    return run_loop(stmt, std::move(items), depth0);
  });
}

Result<bool> Interpreter::pull(LoopObject& loop, Value& item) {
  if (loop.has_peeked) {
    loop.has_peeked = false;
    item = std::move(loop.peeked);
    return true;
  }
  while (loop.next < loop.items.size()) {
    SKEIN_TRY(rt_.spend(1));
    item = loop.items[loop.next++];
    if (loop.stmt->filter == nullptr || loop.filtered) return true;
    const ScopeSwitch inner(*this, loop.scope);
    SKEIN_TRY(assign(*loop.stmt->target, item));
    SKEIN_ASSIGN(const Value passes, evaluate(*loop.stmt->filter));
    if (truthy(passes)) return true;
  }
  return false;
}

Result<bool> Interpreter::peek(LoopObject& loop) {
  if (loop.has_peeked) return true;
  Value item;
  SKEIN_ASSIGN(const bool more, pull(loop, item));
  if (!more) return false;
  loop.has_peeked = true;
  loop.peeked = std::move(item);
  return true;
}

Result<int64_t> Interpreter::loop_length(LoopObject& loop) {
  if (loop.stmt->filter != nullptr && !loop.filtered) {
    std::vector<Value> rest;
    Value item;
    while (true) {
      SKEIN_ASSIGN(const bool more, pull(loop, item));
      if (!more) break;
      rest.push_back(std::move(item));
    }
    loop.items = std::move(rest);
    loop.next = 0;
    loop.filtered = true;
  }
  return loop.index0 + 1 + (loop.has_peeked ? 1 : 0) +
         static_cast<int64_t>(loop.items.size() - loop.next);
}

Result<Value> Interpreter::loop_attribute(const Value& value, std::string_view name) {
  auto& loop = value.as<LoopObject>();
  if (name == "index0") return Value::integer(loop.index0);
  if (name == "index") return Value::integer(loop.index0 + 1);
  if (name == "first") return Value::boolean(loop.index0 == 0);
  if (name == "depth") return Value::integer(loop.depth0 + 1);
  if (name == "depth0") return Value::integer(loop.depth0);
  const Native* method = find_native(kLoopMethods, name);
  if (method != nullptr) return rt_.function(*method, value);
  if (name == "last") {
    SKEIN_ASSIGN(const bool more, peek(loop));
    return Value::boolean(!more);
  }
  if (name == "previtem") {
    if (loop.index0 == 0) return rt_.undefined("there is no previous item");
    return loop.previous;
  }
  if (name == "nextitem") {
    SKEIN_ASSIGN(const bool more, peek(loop));
    return more ? loop.peeked : rt_.undefined("there is no next item");
  }
  if (name == "length" || name == "revindex" || name == "revindex0") {
    SKEIN_ASSIGN(const int64_t length, loop_length(loop));
    if (name == "length") return Value::integer(length);
    return Value::integer(length - loop.index0 - (name == "revindex0" ? 1 : 0));
  }
  return rt_.missing(value, name);
}

}  // namespace skein::jinja
