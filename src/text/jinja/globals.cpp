// Functions that every template can call.
#include <algorithm>

#include "text/jinja/natives.h"

namespace skein::jinja {
namespace {

Result<Value> range(Runtime& rt, const Value&, Args& args) {
  SKEIN_ASSIGN(const Bound a, bind(args, "range", {"start", "stop", "step"}, 1));
  int64_t part[3] = {0, 0, 1};
  for (size_t i = 0; i < 3 && a.has(i); ++i) {
    SKEIN_ASSIGN(part[i], expect_int(a[i], "range(): an argument"));
  }
  if (!a.has(1)) std::swap(part[0], part[1]);
  const auto [start, stop, step] = part;
  if (step == 0) return invalid_argument("range() arg 3 must not be zero");
  const bool up = step > 0;
  const uint64_t span = up ? static_cast<uint64_t>(stop) - static_cast<uint64_t>(start)
                           : static_cast<uint64_t>(start) - static_cast<uint64_t>(stop);
  const uint64_t stride = up ? static_cast<uint64_t>(step) : ~static_cast<uint64_t>(step) + 1;
  const bool empty = up ? stop <= start : start <= stop;
  const uint64_t count = empty ? 0 : (span - 1) / stride + 1;
  constexpr uint64_t kMaxRange = 100'000;  // as Jinja2's sandbox has it
  if (count > kMaxRange) {
    return out_of_range("range too big: {} items, at most {} are allowed", count, kMaxRange);
  }
  return rt.range(start, step, static_cast<int64_t>(count));
}

Result<std::vector<std::pair<Value, Value>>> dict_entries(Runtime& rt, std::string_view function,
                                                          const Args& args) {
  std::vector<std::pair<Value, Value>> entries;
  if (args.positional.size() > 1) {
    return invalid_argument("{}() takes at most one positional argument", function);
  }
  for (const Value& source : args.positional) {
    if (source.is_dict()) {
      SKEIN_TRY(rt.spend(source.dict().entries.size() / 4));
      entries = source.dict().entries;
      continue;
    }
    SKEIN_ASSIGN(const std::vector<Value> pairs, iterate(rt, source));
    for (const Value& pair : pairs) {
      SKEIN_ASSIGN(const std::vector<Value> parts, iterate(rt, pair));
      if (parts.size() != 2) {
        return invalid_argument("{}(): a pair was expected, {} items found", function,
                                parts.size());
      }
      entries.emplace_back(parts[0], parts[1]);
    }
  }
  for (const auto& [name, value] : args.keywords) {
    entries.emplace_back(rt.string(name), value);
  }
  return entries;
}

Result<Value> dict(Runtime& rt, const Value&, Args& args) {
  SKEIN_ASSIGN(const auto entries, dict_entries(rt, "dict", args));
  return make_dict(rt, entries);
}

Result<Value> make_namespace(Runtime& rt, const Value&, Args& args) {
  SKEIN_ASSIGN(const auto entries, dict_entries(rt, "namespace", args));
  const Ref<NamespaceObject> object = rt.heap().make<NamespaceObject>(0);
  for (const auto& [key, value] : entries) {
    if (!key.is_string()) return invalid_argument("namespace(): names must be strings");
    rt.heap().grow(*object, kDictEntryBytes + key.bytes().size());
    SKEIN_TRY(rt.spend(1));
    object->attributes[key.bytes()] = value;
  }
  return Value::object(Kind::kNamespace, object);
}

Result<Value> raise_exception(Runtime& rt, const Value&, Args& args) {
  SKEIN_ASSIGN(const Bound a, bind(args, "raise_exception", {"message"}, 1));
  SKEIN_ASSIGN(const MarkedText message, to_text(rt, a[0]));
  constexpr size_t kShown = 2000;
  return invalid_argument("{}", std::string_view(message.bytes()).substr(0, kShown));
}

Result<Value> strftime_now(Runtime& rt, const Value&, Args& args) {
  SKEIN_ASSIGN(const Bound a, bind(args, "strftime_now", {"format"}, 1));
  SKEIN_ASSIGN(const MarkedText* format, expect_string(a[0], "strftime_now: the format"));
  if (format->empty()) return a[0];
  SKEIN_TRY(rt.spend(format->size() / 8));
  char buffer[1024];
  const size_t size =
      std::strftime(buffer, sizeof buffer, format->bytes().c_str(), &rt.now().value());
  if (size == 0) {
    return invalid_argument("strftime_now: the result is empty or over {} bytes", sizeof buffer);
  }
  return rt.string(std::string(buffer, size), format->from_template());
}

Result<Value> cycler(Runtime& rt, const Value&, Args& args) {
  if (args.positional.empty()) return invalid_argument("at least one item has to be provided");
  const uint64_t bytes = args.positional.size() * sizeof(Value);
  return Value::object(Kind::kCycler, rt.heap().make<CyclerObject>(bytes, args.positional));
}

Result<Value> joiner(Runtime& rt, const Value&, Args& args) {
  SKEIN_ASSIGN(const Bound a, bind(args, "joiner", {"sep"}, 0));
  return Value::object(Kind::kJoiner,
                       rt.heap().make<JoinerObject>(0, a.has(0) ? a[0] : rt.string(", ", true)));
}

Result<Value> lipsum(Runtime&, const Value&, Args&) {
  return unimplemented("lipsum() is not provided");
}

constexpr NativeEntry kGlobals[] = {
    {"range", range},
    {"dict", dict},
    {"namespace", make_namespace},
    {"raise_exception", raise_exception},
    {"strftime_now", strftime_now},
    {"cycler", cycler},
    {"joiner", joiner},
    {"lipsum", lipsum},
};

}  // namespace

NativeFn find_global(std::string_view name) {
  return find_native(kGlobals, name);
}

}  // namespace skein::jinja
