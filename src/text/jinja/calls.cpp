// Calls of macros and native functions, and the `loop` variable.
#include <algorithm>

#include "text/jinja/interpreter.h"
#include "text/jinja/natives.h"

namespace skein::jinja {
namespace {

Result<Value> loop_cycle(Runtime&, const Value& self, Args& args) {
  if (args.positional.empty()) return invalid_argument("no items for cycling given");
  const auto index = static_cast<size_t>(self.as<LoopObject>().index0);
  return args.positional[index % args.positional.size()];
}

Result<Value> loop_changed(Runtime& rt, const Value& self, Args& args) {
  auto& loop = self.as<LoopObject>();
  const Value now = rt.list(args.positional, Kind::kTuple);
  SKEIN_ASSIGN(const bool same, equals(rt, loop.changed, now));
  if (same) return Value::boolean(false);
  loop.changed = now;
  return Value::boolean(true);
}

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

Result<Value> Interpreter::call(const Value& function, Args& args) {
  switch (function.kind()) {
    case Kind::kFunction: {
      const auto& native = function.as<FunctionObject>();
      return native.fn(rt_, native.self, args);
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

Result<Value> Interpreter::call_loop(const LoopObject& loop, Args& args) {
  if (!loop.stmt->recursive) {
    return invalid_argument("the loop must have the 'recursive' marker to be called recursively");
  }
  const Runtime::Nested nested(rt_);
  SKEIN_TRY(nested.check());
  SKEIN_ASSIGN(const Bound a, bind(args, "loop", {"iterable"}, 1));
  SKEIN_ASSIGN(std::vector<Value> items, iterate(rt_, a[0]));
  const Stmt& stmt = *loop.stmt;
  const int64_t depth0 = loop.depth0 + 1;
  MarkedText captured;
  MarkedText* const outer_out = std::exchange(out_, &captured);
  Status status;
  {
    const Ref<ScopeObject> around = loop.scope;
    const ScopeSwitch inner(*this, around);
    status = run_loop(stmt, std::move(items), depth0);
  }
  out_ = outer_out;
  SKEIN_TRY(status);
  rt_.heap().remove_bytes(captured.held_bytes());
  return rt_.string(std::move(captured));
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
  if (name == "cycle") return rt_.function(name, loop_cycle, value);
  if (name == "changed") return rt_.function(name, loop_changed, value);
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
