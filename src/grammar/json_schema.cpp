#include "grammar/json_schema.h"

#include <algorithm>
#include <fmt/format.h>
#include <map>
#include <unordered_map>

#include "grammar/regex_parser.h"
#include "grammar/schema_reader.h"

namespace skein::grammar {
namespace {

// Writes the rules of forms. A rule is a form's; terminals are shared.
class SchemaWriter {
 public:
  SchemaWriter(SchemaReader& reader, Rules& rules, const SchemaOptions& options, ExprId white_space)
      : reader_(reader), rules_(rules), store_(*rules.regex), options_(options) {
    space_ = white_space;
    const auto fixed = [&](char c) { return store_.concat(space_, store_.byte(c)); };
    space_terminal_ = terminal(space_);
    comma_ = terminal(store_.concat(fixed(','), space_));
    colon_ = terminal(store_.concat(fixed(':'), space_));
    open_array_ = terminal(store_.byte('['));
    close_array_ = terminal(fixed(']'));
    open_object_ = terminal(store_.byte('{'));
    close_object_ = terminal(fixed('}'));
  }

  void write(FormId start) {
    rules_.start = rule_of(start);
    while (!waiting_.empty() && reader_.charge(1)) {
      const FormId form = waiting_.back();
      waiting_.pop_back();
      write_form(form, rule_of_.at(form));
    }
  }
  uint64_t symbols() const { return symbols_; }

 private:
  uint32_t terminal(ExprId expression, bool distinct = false) {
    const auto [found, added] = terminals_.try_emplace({expression, distinct}, 0);
    if (added) found->second = rules_.add_terminal(expression, distinct);
    return found->second;
  }
  uint32_t rule_of(FormId form) {
    const auto [found, added] = rule_of_.try_emplace(form, 0);
    if (added) {
      found->second = rules_.add_rule();
      waiting_.push_back(form);
    }
    return found->second;
  }
  void add(uint32_t rule, Production production) {
    symbols_ += production.symbols.size() + 1;
    rules_.rules[rule].push_back(std::move(production));
  }

  ExprId quoted(ExprId text) {
    const std::vector<ExprId> parts = {store_.byte('"'), text, store_.byte('"')};
    return store_.concat(parts);
  }

  // All scalars of a set are one terminal. In lists whose items differ, numbers have no exponent.
  ExprId scalars(const ValueSet& set, bool distinct) {
    std::vector<ExprId> parts;
    if (set.null) parts.push_back(store_.literal("null"));
    if (set.yes) parts.push_back(store_.literal("true"));
    if (set.no) parts.push_back(store_.literal("false"));
    for (const StringSet& string : set.strings) {
      StringSet one = string;
      if (distinct && one.language == kAnything) {
        one.language = store_.repeat(json_char(store_), 0, kUnbounded);
      }
      const ExprId text = reader_.algebra().text_of(one);
      if (store_.live(text) != Answer::kNo) parts.push_back(quoted(text));
    }
    for (NumberSet number : set.numbers) {
      if (distinct && !number.values && !number.lo && !number.integers) {
        number.no_exponent = true;
      }
      const auto text = number_expression(store_, number);
      if (text) parts.push_back(*text);
      if (!text) {
        reader_.fail(FormCode::kTooComplex,
                     "the least common multiple of several multipleOf has more than nine digits",
                     kNoJson);
      }
    }
    return store_.either(std::move(parts));
  }

  void write_form(FormId form, uint32_t rule) {
    const ValueSet set = reader_.values(form);
    if (const ExprId text = scalars(set, false); text != kNothing) {
      add(rule, {.symbols = {Symbol::terminal(terminal(text))}});
    }
    for (const ArraySet& array : set.arrays) write_array(array, rule);
    for (const ObjectSet& object : set.objects) write_object(object, rule);
  }

  bool only_scalars(FormId form) {
    const ValueSet& set = reader_.values(form);
    return set.arrays.empty() && set.objects.empty();
  }

  // At most so many different values, where that is known.
  uint32_t different_values(FormId form) {
    const ValueSet& set = reader_.values(form);
    uint64_t count = uint64_t{set.null} + set.yes + set.no;
    for (const StringSet& string : set.strings) count += string.most;
    for (const NumberSet& number : set.numbers) {
      count += number.values ? number.values->size() : kUnbounded;
    }
    return static_cast<uint32_t>(std::min<uint64_t>(count, kUnbounded));
  }

  void write_array(ArraySet array, uint32_t rule) {
    if (reader_.is_empty(array.rest)) {
      array.hi = std::min(array.hi, static_cast<uint32_t>(array.prefix.size()));
    }
    for (uint32_t i = 0; i < array.prefix.size(); ++i) {
      if (reader_.is_empty(array.prefix[i])) array.hi = std::min(array.hi, i);
    }
    if (array.prefix.size() > array.hi) array.prefix.resize(array.hi);
    bool distinct = array.unique && array.hi > 1;
    if (distinct) {
      const bool rest = array.hi > array.prefix.size();
      distinct = (!rest || only_scalars(array.rest)) &&
                 std::all_of(array.prefix.begin(), array.prefix.end(),
                             [&](FormId form) { return only_scalars(form); });
      if (!distinct) {
        reader_.relax(array.unique_at, "uniqueItems over arrays or objects cannot be enforced");
      } else if (array.prefix.empty()) {
        array.hi = std::min(array.hi, different_values(array.rest));
      }
    }
    if (array.lo > array.hi) return;
    const auto value = [&](FormId form) {
      return distinct ? Symbol::terminal(terminal(scalars(reader_.values(form), true), true))
                      : Symbol::rule(rule_of(form));
    };
    const auto fixed = static_cast<uint32_t>(array.prefix.size());
    const uint32_t loop = write_loop(array, fixed, value(array.rest));
    uint32_t next = loop;
    for (uint32_t i = fixed; i-- > 1;) {  // i items are there already
      const uint32_t here = rules_.add_rule();
      if (i >= array.lo) add(here, {.symbols = {Symbol::terminal(close_array_)}});
      add(here, {.symbols = {Symbol::terminal(comma_), value(array.prefix[i]),
                             Symbol::inheriting(next)}});
      next = here;
    }
    const uint32_t first = rules_.add_rule();
    if (array.lo == 0) add(first, {.symbols = {Symbol::terminal(close_array_)}});
    if (array.hi > 0) {
      add(first,
          {.symbols = {Symbol::terminal(space_terminal_),
                       value(fixed > 0 ? array.prefix[0] : array.rest), Symbol::inheriting(next)},
           .raise_to = fixed == 0 ? count_limit(array.lo, array.hi) : 0});
    }
    add(rule, {.symbols = {Symbol::terminal(open_array_), Symbol::rule(first)}});
  }

  // Counts need to be known up to here: beyond, nothing depends on them.
  static uint32_t count_limit(uint32_t lo, uint32_t hi) { return hi == kUnbounded ? lo : hi; }

  // What may follow when all items of the prefix are there; the count is of items beyond it.
  uint32_t write_loop(const ArraySet& array, uint32_t fixed, Symbol item) {
    const uint32_t loop = rules_.add_rule();
    const uint32_t lo = array.lo > fixed ? array.lo - fixed : 0;
    const uint32_t hi = array.hi == kUnbounded ? kUnbounded : array.hi - fixed;
    add(loop, {.symbols = {Symbol::terminal(close_array_)}, .least = lo});
    if (hi > 0) {
      add(loop, {.symbols = {Symbol::terminal(comma_), item, Symbol::inheriting(loop)},
                 .most = hi == kUnbounded ? kUnbounded : hi - 1,
                 .raise_to = count_limit(lo, hi)});
    }
    return loop;
  }

  struct FreeNames {
    uint32_t key;
    FormId form;
  };

  // Names that are not listed: none in a closed object.
  std::vector<FreeNames> free_names(const ObjectSet& object, size_t usable) {
    const bool closed = object.listed && !options_.open && object.lo <= usable;
    std::vector<std::string> listed;
    for (const ObjectSet::Member& member : object.members) listed.push_back(member.name);
    const ExprId taken = spelled_texts(store_, std::move(listed));
    std::vector<FreeNames> result;
    for (const ObjectSet::Cell& cell : object.cells) {
      if (cell.form == kNoForm || (closed && cell.implicit) || reader_.is_empty(cell.form))
        continue;
      ExprId names = cell.names;
      const ExprId any = store_.repeat(json_char(store_), 0, kUnbounded);
      names = names == kAnything ? any : store_.both(names, any);
      names = store_.both(names, store_.negation(taken));
      if (store_.live(names) == Answer::kNo) continue;
      result.push_back({terminal(quoted(names), true), cell.form});
    }
    return result;
  }

  uint32_t key_terminal(const std::string& name, bool first) {
    const ExprId key = quoted(spelled_text(store_, name, Spelling::kJson));
    const ExprId before =
        first ? space_ : store_.concat(store_.concat(space_, store_.byte(',')), space_);
    const std::vector<ExprId> parts = {before, key, space_, store_.byte(':'), space_};
    return terminal(store_.concat(parts));
  }

  void write_object(const ObjectSet& object, uint32_t rule) {
    std::vector<const ObjectSet::Member*> members;
    uint32_t required = 0;
    for (const ObjectSet::Member& member : object.members) {
      if (member.form == kNoForm || reader_.is_empty(member.form)) {
        if (member.required) return;
        continue;
      }
      members.push_back(&member);
      required += member.required ? 1 : 0;
    }
    const std::vector<FreeNames> free = free_names(object, members.size());
    const auto n = static_cast<uint32_t>(members.size());
    const uint32_t lo = object.lo <= required ? 0 : object.lo;
    const uint32_t hi = free.empty() && object.hi >= n ? kUnbounded : object.hi;
    if (required > hi || (free.empty() && lo > n)) return;
    const uint32_t limit = count_limit(lo, hi);
    const auto most_before = [&](uint32_t needed) {  // leaves room for one and `needed` more
      return hi == kUnbounded ? kUnbounded : hi - 1 - needed;
    };
    uint32_t chain[2] = {rules_.add_rule(), rules_.add_rule()};  // the end: [1] behind a member
    const uint32_t behind_end = chain[1];
    for (const bool first : {true, false}) {
      const uint32_t here = chain[first ? 0 : 1];
      add(here, {.symbols = {Symbol::terminal(close_object_)}, .least = lo});
      if (hi == 0) continue;
      for (const FreeNames& names : free) {
        add(here, {.symbols = {Symbol::terminal(first ? space_terminal_ : comma_),
                               Symbol::terminal(names.key), Symbol::terminal(colon_),
                               Symbol::rule(rule_of(names.form)), Symbol::inheriting(behind_end)},
                   .most = most_before(0),
                   .raise_to = limit});
      }
    }
    uint32_t needed = 0;  // required members behind this one
    for (uint32_t i = n; i-- > 0 && reader_.charge(1);) {
      const ObjectSet::Member& member = *members[i];
      const uint32_t behind = n - 1 - i;
      const uint32_t next[2] = {chain[0], chain[1]};
      for (const bool first : {true, false}) {
        const uint32_t here = rules_.add_rule();
        if (hi == kUnbounded || hi > needed) {
          add(here, {.symbols = {Symbol::terminal(key_terminal(member.name, first)),
                                 Symbol::rule(rule_of(member.form)), Symbol::inheriting(next[1])},
                     .most = most_before(needed),
                     .raise_to = limit});
        }
        if (!member.required) {
          const uint32_t least = free.empty() && lo > behind ? lo - behind : 0;
          add(here, {.symbols = {Symbol::inheriting(next[first ? 0 : 1])}, .least = least});
        }
        chain[first ? 0 : 1] = here;
      }
      needed += member.required ? 1 : 0;
    }
    add(rule, {.symbols = {Symbol::terminal(open_object_), Symbol::rule(chain[0])}});
  }

  SchemaReader& reader_;
  Rules& rules_;
  RegexStore& store_;
  SchemaOptions options_;
  ExprId space_ = kNothing;
  uint32_t space_terminal_, comma_, colon_, open_array_, close_array_, open_object_, close_object_;
  std::map<std::pair<ExprId, bool>, uint32_t> terminals_;
  std::unordered_map<FormId, uint32_t> rule_of_;
  std::vector<FormId> waiting_;
  uint64_t symbols_ = 0;
};

// What of the pattern is white space to JSON. A pattern that takes anything but white space is an
// error of who wrote it.
FormResult<ExprId> white_space_of(RegexStore& store, const SchemaOptions& options) {
  if (!options.white_space) return json_white_space(store);
  PatternOptions pattern;
  pattern.anchored = true;
  FormResult<ExprId> parsed = parse_pattern(store, *options.white_space, pattern);
  if (!parsed.ok()) {
    return FormError{parsed.error().code, parsed.error().message, std::string(kWhiteSpaceField)};
  }
  const ExprId json = store.repeat(store.byte_class(ByteSet::of(" \t\n\r")), 0, kUnbounded);
  if (store.contains(json, *parsed) == Answer::kYes && *parsed != kNothing) return *parsed;
  FormResult<ExprId> spaces = parse_pattern(store, "\\s*", pattern);
  const ExprId space = store.both(*parsed, json);
  if (store.contains(*spaces, *parsed) != Answer::kYes || store.live(space) != Answer::kYes) {
    return FormError{FormCode::kInvalidRegex, "it takes what is not white space",
                     std::string(kWhiteSpaceField)};
  }
  return space;
}

}  // namespace

FormResult<SchemaStart> append_json_schema(Rules& rules, std::string_view schema,
                                           const SchemaOptions& options) {
  FormResult<JsonDocument> document = JsonDocument::parse(schema);
  if (!document.ok()) return document.error();
  const JsonId at = document->follow(document->root(), options.at);
  if (at == kNoJson) {
    return FormError{FormCode::kInvalidSchema, "no schema stands there", options.at};
  }
  SchemaReader reader(*document, *rules.regex, options);
  FormId start = reader.form(at);
  if (reader.error()) return *reader.error();
  if (options.objects_only) start = reader.forms().both(start, reader.forms().objects());
  FormResult<ExprId> white_space = white_space_of(*rules.regex, options);
  if (!white_space.ok()) return white_space.error();
  SchemaWriter writer(reader, rules, options, *white_space);
  writer.write(start);
  if (reader.error()) return *reader.error();
  if (rules.regex->full()) {
    return FormError{FormCode::kTooComplex,
                     fmt::format("more than {} expressions", kMaxExpressions), ""};
  }
  SchemaStart result{rules.start, reader.relaxed(), reader.units()};
  if (reader.error()) return *reader.error();
  return result;
}

FormResult<SchemaRules> json_schema_rules(std::string_view schema, const SchemaOptions& options) {
  SchemaRules result;
  FormResult<SchemaStart> start = append_json_schema(result.rules, schema, options);
  if (!start.ok()) return start.error();
  result.relaxed = std::move(start->relaxed);
  return result;
}

}  // namespace skein::grammar
