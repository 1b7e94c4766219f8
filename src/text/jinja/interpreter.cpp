#include "text/jinja/interpreter.h"

#include <algorithm>

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

Value take_keyword(Args& args, std::string_view name, bool& found) {
  const auto it = std::find_if(args.keywords.begin(), args.keywords.end(),
                               [name](const auto& kw) { return kw.first.bytes() == name; });
  found = it != args.keywords.end();
  if (!found) return {};
  Value value = std::move(it->second);
  args.keywords.erase(it);
  return value;
}

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

// --- expressions, and the calls of functions and macros ---

Result<Value> Interpreter::evaluate(const Expr& expr) {
  const Runtime::Nested nested(rt_);
  SKEIN_TRY(nested.check());
  SKEIN_TRY(rt_.spend(1));
  line_ = expr.line;
  switch (expr.kind) {
    case ExprKind::kLiteral:
      return evaluate_literal(expr);
    case ExprKind::kName:
      return evaluate_name(expr);
    case ExprKind::kList:
    case ExprKind::kTuple:
      return evaluate_items(expr);
    case ExprKind::kDict:
      return evaluate_dict(expr);
    case ExprKind::kNot:
    case ExprKind::kNegate:
    case ExprKind::kPlus: {
      SKEIN_ASSIGN(const Value operand, evaluate(*expr.children[0]));
      if (expr.kind == ExprKind::kNot) return Value::boolean(!truthy(operand));
      return expr.kind == ExprKind::kNegate ? negate(operand) : unary_plus(operand);
    }
    case ExprKind::kBinary:
      return evaluate_binary(expr);
    case ExprKind::kAnd:
    case ExprKind::kOr: {
      SKEIN_ASSIGN(Value left, evaluate(*expr.children[0]));
      if (truthy(left) == (expr.kind == ExprKind::kOr)) return left;
      return evaluate(*expr.children[1]);
    }
    case ExprKind::kCompare:
      return evaluate_compare(expr);
    case ExprKind::kConcat:
      return evaluate_concat(expr);
    case ExprKind::kCondition:
      return evaluate_condition(expr);
    case ExprKind::kAttribute:
      return evaluate_attribute(expr);
    case ExprKind::kItem:
      return evaluate_item(expr);
    case ExprKind::kSlice:
      return evaluate_slice(expr);
    case ExprKind::kCall:
      return evaluate_call(expr);
    case ExprKind::kFilter:
      return evaluate_filter(expr, nullptr);
    case ExprKind::kTest:
      return evaluate_test(expr);
    case ExprKind::kNamespaceTarget:
      break;  // stands only on the left of an assignment
  }
  return internal_error("an expression of unknown kind");
}

Result<Value> Interpreter::evaluate_literal(const Expr& expr) {
  if (const auto* text = std::get_if<std::string>(&expr.literal)) {
    Value& value = strings_[expr.string_index];
    if (value.is_undefined()) value = rt_.string(*text, true);
    return value;
  }
  if (const auto* integer = std::get_if<int64_t>(&expr.literal)) return Value::integer(*integer);
  if (const auto* real = std::get_if<double>(&expr.literal)) return Value::real(*real);
  if (const auto* boolean = std::get_if<bool>(&expr.literal)) return Value::boolean(*boolean);
  return Value::none();
}

Result<Value*> Interpreter::find_variable(Symbol symbol) {
  uint64_t scopes = 0;
  uint64_t searched = 0;
  Value* found = nullptr;
  for (ScopeObject* scope = scope_.get(); scope != nullptr && found == nullptr;
       scope = scope->parent.get()) {
    auto& variables = scope->variables;
    const auto it = std::find_if(variables.begin(), variables.end(),
                                 [symbol](const auto& v) { return v.first == symbol; });
    if (it != variables.end()) found = &it->second;
    ++scopes;
    searched += static_cast<uint64_t>(it - variables.begin());
  }
  SKEIN_TRY(rt_.spend(scopes + searched / 16));
  return found;
}

Result<Value> Interpreter::evaluate_name(const Expr& expr) {
  SKEIN_ASSIGN(const Value* found, find_variable(expr.symbol));
  if (found != nullptr) return *found;
  const std::string& name = program_.names[expr.symbol];
  SKEIN_TRY(rt_.spend(name.size() / 32));
  const Native* global = find_global(name);
  const bool has_time = rt_.now().has_value() || name != "strftime_now";
  if (global != nullptr && has_time) return rt_.function(*global, Value::none());
  return rt_.undefined(fmt::format("'{}' is undefined", name));
}

Result<Value> Interpreter::evaluate_items(const Expr& expr) {
  std::vector<Value> items;
  items.reserve(expr.children.size());
  for (const ExprPtr& child : expr.children) {
    SKEIN_ASSIGN(Value item, evaluate(*child));
    items.push_back(std::move(item));
  }
  return rt_.list(std::move(items), expr.kind == ExprKind::kList ? Kind::kList : Kind::kTuple);
}

Result<Value> Interpreter::evaluate_dict(const Expr& expr) {
  std::vector<std::pair<Value, Value>> entries;
  for (size_t i = 0; i + 1 < expr.children.size(); i += 2) {
    SKEIN_ASSIGN(Value key, evaluate(*expr.children[i]));
    SKEIN_ASSIGN(Value value, evaluate(*expr.children[i + 1]));
    entries.emplace_back(std::move(key), std::move(value));
  }
  return make_dict(rt_, entries);
}

Result<Value> Interpreter::evaluate_binary(const Expr& expr) {
  SKEIN_ASSIGN(const Value left, evaluate(*expr.children[0]));
  SKEIN_ASSIGN(const Value right, evaluate(*expr.children[1]));
  line_ = expr.line;
  return apply(rt_, expr.op, left, right);
}

Result<Value> Interpreter::evaluate_compare(const Expr& expr) {
  SKEIN_ASSIGN(Value left, evaluate(*expr.children[0]));
  for (size_t i = 0; i < expr.ops.size(); ++i) {
    SKEIN_ASSIGN(Value right, evaluate(*expr.children[i + 1]));
    line_ = expr.line;
    SKEIN_ASSIGN(const bool holds, compare(rt_, expr.ops[i], left, right));
    if (!holds) return Value::boolean(false);
    left = std::move(right);
  }
  return Value::boolean(true);
}

Result<Value> Interpreter::evaluate_concat(const Expr& expr) {
  MarkedText out;
  for (const ExprPtr& child : expr.children) {
    SKEIN_ASSIGN(const Value part, evaluate(*child));
    if (part.is_string()) {
      SKEIN_TRY(rt_.expect_bytes(out.held_bytes() + part.text().held_bytes()));
      out.append(part.text());
    } else {
      SKEIN_ASSIGN(const MarkedText text, to_text(rt_, part));
      SKEIN_TRY(rt_.expect_bytes(out.held_bytes() + text.held_bytes()));
      out.append(text);
    }
  }
  return rt_.string(std::move(out));
}

Result<Value> Interpreter::evaluate_condition(const Expr& expr) {
  SKEIN_ASSIGN(const Value test, evaluate(*expr.children[0]));
  if (truthy(test)) return evaluate(*expr.children[1]);
  if (expr.children[2] != nullptr) return evaluate(*expr.children[2]);
  return rt_.undefined(fmt::format(
      "the inline if-expression on line {} evaluated to false and no else section was defined",
      expr.line));
}

Result<Value> Interpreter::evaluate_attribute(const Expr& expr) {
  SKEIN_ASSIGN(const Value object, evaluate(*expr.children[0]));
  line_ = expr.line;
  SKEIN_TRY(rt_.spend(expr.text.size() / 32));
  if (object.is(Kind::kLoop)) return loop_attribute(object, expr.text);
  return get_attribute(rt_, object, expr.text);
}

Result<Value> Interpreter::evaluate_item(const Expr& expr) {
  SKEIN_ASSIGN(const Value object, evaluate(*expr.children[0]));
  SKEIN_ASSIGN(const Value key, evaluate(*expr.children[1]));
  line_ = expr.line;
  if (object.is(Kind::kLoop) && key.is_string()) return loop_attribute(object, key.bytes());
  return get_item(rt_, object, key);
}

Result<Value> Interpreter::evaluate_slice(const Expr& expr) {
  Value part[4];
  for (size_t i = 0; i < 4; ++i) {
    part[i] = Value::none();
    if (expr.children[i] == nullptr) continue;
    SKEIN_ASSIGN(part[i], evaluate(*expr.children[i]));
  }
  line_ = expr.line;
  return get_slice(rt_, part[0], part[1], part[2], part[3]);
}

Result<Args> Interpreter::evaluate_arguments(const CallSyntax& call) {
  Args args;
  for (const ExprPtr& expr : call.positional) {
    SKEIN_ASSIGN(Value value, evaluate(*expr));
    args.positional.push_back(std::move(value));
  }
  for (const auto& [name, expr] : call.keywords) {
    SKEIN_ASSIGN(Value value, evaluate(*expr));
    args.keywords.emplace_back(MarkedText(name, true), std::move(value));
  }
  if (call.star != nullptr) {
    SKEIN_ASSIGN(const Value value, evaluate(*call.star));
    SKEIN_ASSIGN(const std::vector<Value> items, iterate(rt_, value));
    args.positional.insert(args.positional.end(), items.begin(), items.end());
  }
  if (call.double_star != nullptr) {
    SKEIN_ASSIGN(const Value value, evaluate(*call.double_star));
    if (!value.is_dict()) return invalid_argument("argument after ** must be a mapping");
    for (const auto& [key, item] : value.dict().entries) {
      if (!key.is_string()) return invalid_argument("keywords must be strings");
      SKEIN_TRY(rt_.spend(1 + key.bytes().size() / 32));
      args.keywords.emplace_back(key.text(), item);
    }
  }
  return args;
}

Result<Value> Interpreter::evaluate_call(const Expr& expr) {
  SKEIN_ASSIGN(const Value function, evaluate(*expr.children[0]));
  SKEIN_ASSIGN(Args args, evaluate_arguments(*expr.call));
  line_ = expr.line;
  return call(function, args);
}

Result<Value> Interpreter::evaluate_filter(const Expr& expr, const Value* input) {
  const Runtime::Nested nested(rt_);
  SKEIN_TRY(nested.check());
  Value value;
  const Expr* operand = expr.children[0].get();
  if (operand == nullptr) {
    value = *input;
  } else if (input != nullptr && operand->kind == ExprKind::kFilter) {
    SKEIN_ASSIGN(value, evaluate_filter(*operand, input));
  } else {
    SKEIN_ASSIGN(value, evaluate(*operand));
  }
  SKEIN_ASSIGN(Args args, evaluate_arguments(*expr.call));
  line_ = expr.line;
  if (expr.native == nullptr) return invalid_argument("no filter named '{}'", expr.text);
  return call_native(rt_, *expr.native, value, args);
}

Result<Value> Interpreter::evaluate_test(const Expr& expr) {
  SKEIN_ASSIGN(const Value value, evaluate(*expr.children[0]));
  SKEIN_ASSIGN(Args args, evaluate_arguments(*expr.call));
  line_ = expr.line;
  if (expr.native == nullptr) return invalid_argument("no test named '{}'", expr.text);
  return call_native(rt_, *expr.native, value, args);
}

Result<Value> Interpreter::call(const Value& function, Args& args) {
  switch (function.kind()) {
    case Kind::kFunction: {
      const auto& bound = function.as<FunctionObject>();
      return call_native(rt_, *bound.native, bound.self, args);
    }
    case Kind::kMacro:
      return call_macro(function.as<MacroObject>(), args);
    case Kind::kLoop:
      return call_loop(function.as<LoopObject>(), args);
    case Kind::kJoiner: {
      auto& joiner = function.as<JoinerObject>();
      if (std::exchange(joiner.used, true)) return joiner.separator;
      return rt_.string("", true);
    }
    case Kind::kUndefined:
      return undefined_error(function);
    default:
      return invalid_argument("'{}' object is not callable", type_name(function));
  }
}

Status Interpreter::bind_macro(const MacroObject& macro, Args& args) {
  const MacroSyntax& syntax = *macro.syntax;
  const size_t count = syntax.parameters.size();
  const size_t first_default = count - syntax.defaults.size();
  bool explicit_caller = false;
  for (size_t i = 0; i < count; ++i) {
    const auto& [symbol, name] = syntax.parameters[i];
    explicit_caller |= name == "caller";
    SKEIN_TRY(rt_.spend(args.keywords.size() / 4));  // each is looked at, and moved up
    bool given = i < args.positional.size();
    Value value = given ? args.positional[i] : take_keyword(args, name, given);
    if (!given && i >= first_default) {
      SKEIN_ASSIGN(value, evaluate(*syntax.defaults[i - first_default]));
    } else if (!given) {
      value = rt_.undefined(fmt::format("parameter '{}' was not provided", name));
    }
    SKEIN_TRY(assign_symbol(symbol, std::move(value)));
  }
  if (syntax.uses_caller && !explicit_caller) {
    bool given = false;
    Value caller = take_keyword(args, "caller", given);
    if (!given) caller = rt_.undefined("No caller defined");
    SKEIN_TRY(assign_symbol(caller_symbol_, std::move(caller)));
  }
  if (syntax.uses_kwargs) {
    std::vector<std::pair<Value, Value>> entries;
    for (auto& [name, value] : args.keywords) entries.emplace_back(rt_.string(name), value);
    SKEIN_ASSIGN(Value kwargs, make_dict(rt_, entries));
    SKEIN_TRY(assign_symbol(kwargs_symbol_, std::move(kwargs)));
  } else if (!args.keywords.empty()) {
    return invalid_argument("macro '{}' takes no keyword argument '{}'", syntax.name,
                            args.keywords.front().first.bytes());
  }
  const size_t taken = std::min(count, args.positional.size());
  if (syntax.uses_varargs) {
    std::vector<Value> rest(args.positional.begin() + static_cast<ptrdiff_t>(taken),
                            args.positional.end());
    return assign_symbol(varargs_symbol_, rt_.list(std::move(rest), Kind::kTuple));
  }
  if (args.positional.size() > count) {
    return invalid_argument("macro '{}' takes not more than {} argument(s)", syntax.name, count);
  }
  return {};
}

Result<Value> Interpreter::call_macro(const MacroObject& macro, Args& args) {
  const Runtime::Nested nested(rt_);
  SKEIN_TRY(nested.check());
  const Ref<ScopeObject> definition = macro.scope;  // outlives what the body may reassign
  const MacroSyntax& syntax = *macro.syntax;
  const ScopeSwitch inner(*this, definition);
  SKEIN_TRY(bind_macro(macro, args));
  return capture(syntax.body);
}

}  // namespace skein::jinja
