#include "dialog/answer_grammar.h"

#include <algorithm>
#include <fmt/format.h>
#include <optional>

#include "dialog/arguments_grammar.h"
#include "dialog/template_probe.h"

namespace skein::dialog {
namespace {

using grammar::ExprId;
using grammar::Symbol;

class AnswerGrammar : private RulesWriter {
 public:
  // `content`: the rule that text is bound to.
  AnswerGrammar(const ChatFormat& format, std::span<const Tool> tools, const AnswerOptions& options,
                grammar::Rules& rules, std::optional<uint32_t> content)
      : RulesWriter(rules, options.tokens),
        format_(format),
        calls_(format.calls),
        tools_(tools),
        options_(options),
        content_(content),
        arguments_(rules, options.tokens, calls_) {}

  std::optional<grammar::FormError> write(std::vector<std::string>& relaxed) {
    const bool harmony = calls_.shape == CallShape::kHarmony;
    rules().start = harmony ? write_messages() : write_answer();
    arguments_.refuse_empty();
    relaxed = arguments_.take_relaxed();
    return arguments_.error();
  }

 private:
  // A marker around texts, which may come where it is a token; else it is a part of the text.
  void optional_token(std::string_view marker, Symbols& out) {
    const TokenId id = marker.empty() ? kNoToken : token(marker);
    if (id == kNoToken) return;
    out.push_back(Symbol::rule(rule({{}, {Symbol::terminal(rules().add_token(id))}})));
  }

  // The rest of a thought that has begun.
  void end_of_thought(Symbols& out) {
    free_text(format_.reasoning.end, out);
    literal(format_.reasoning.end, out);
  }
  bool thinks() const {
    return !format_.reasoning.end.empty() && options_.may_think && !format_.reasoning.begin.empty();
  }

  // [thought] and then text, calls, or both.
  uint32_t write_answer() {
    std::vector<Symbols> productions;
    const bool calls = options_.choice != ToolChoice::kNone && !tools_.empty();
    const bool opened = options_.in_reasoning && !format_.reasoning.end.empty();
    Symbols section;
    if (calls) section = {Symbol::rule(write_section())};
    const auto add = [&](const Symbols& body, bool thinks_first = true) {
      Symbols with_thought;
      if (!opened) productions.push_back(body);
      if (!opened && !(thinks() && thinks_first)) return;
      if (!opened) literal(format_.reasoning.begin, with_thought);
      end_of_thought(with_thought);
      terminal(white_space(), with_thought);
      with_thought.insert(with_thought.end(), body.begin(), body.end());
      productions.push_back(std::move(with_thought));
    };
    const bool required = options_.choice == ToolChoice::kRequired && calls;
    if (required || (calls && (bare() || content_))) add(section);
    if (required) return rule(std::move(productions));
    Symbols text = {Symbol::rule(write_text())};
    const bool mixed = !content_ && !bare();  // has thoughts of its own
    add(text, !mixed);
    if (!content_) add_broken_off(opened, mixed ? text : Symbols(), productions);
    if (calls && !bare()) {  // no white space behind a form: it would bind the answer to a call
      text.insert(text.end(), section.begin(), section.end());
      add(text, !mixed);
    }
    return rule(std::move(productions));
  }

  // A model may stop inside a thought, where nothing else is wanted of it.
  void add_broken_off(bool opened, Symbols before, std::vector<Symbols>& productions) {
    if (!opened && !thinks()) return;
    Symbols rest;
    free_text(format_.reasoning.end, rest);
    if (opened) productions.push_back(rest);
    if (!thinks()) return;
    if (opened) {
      Symbols first;
      end_of_thought(first);
      before.insert(before.begin(), first.begin(), first.end());
    }
    literal(format_.reasoning.begin, before);
    before.insert(before.end(), rest.begin(), rest.end());
    productions.push_back(std::move(before));
  }

  // Text, and thoughts between the parts of it.
  uint32_t write_text() {
    Symbols one;
    optional_token(format_.text_begin, one);
    if (content_) {
      one.push_back(Symbol::rule(*content_));
    } else {
      terminal(text_without_call(), one);
    }
    optional_token(format_.text_end, one);
    const uint32_t text = rule({one});
    if (content_ || !thinks() || bare()) return text;
    const uint32_t mixed = rules().add_rule();
    Symbols more = {Symbol::rule(text)};
    literal(format_.reasoning.begin, more);
    end_of_thought(more);
    more.push_back(Symbol::rule(mixed));
    rules().add(mixed, {Symbol::rule(text)});
    rules().add(mixed, std::move(more));
    return mixed;
  }

  ExprId white_space() {
    const ExprId one = regex().byte_class(grammar::ByteSet::of(" \n"));
    return regex().repeat(one, 0, 2);
  }

  bool bare() const { return trigger().empty(); }
  std::string trigger() const {
    return std::string(trim(calls_.section_begin + calls_.call_begin));
  }

  // Where nothing but JSON tells a call from text, text does not begin as one does.
  ExprId text_without_call() {
    const std::string_view thought = thinks() ? format_.reasoning.begin : std::string_view();
    if (options_.choice == ToolChoice::kNone || tools_.empty()) return text_without({thought});
    if (!bare()) return text_without({trigger(), thought});
    const std::string begin = calls_.body.substr(0, calls_.body.find(kNamePlace));
    return regex().negation(regex().concat(regex().literal(begin), grammar::kAnything));
  }

  uint32_t write_section() {
    const Symbol call = Symbol::rule(write_calls());
    Symbols symbols;
    literal(calls_.section_begin, symbols);
    symbols.push_back(call);
    if (options_.parallel && calls_.parallel) {
      Symbols another;
      literal(calls_.separator, another);
      another.push_back(call);
      symbols.push_back(
          counted_list(rules(), Symbol::rule(rule({std::move(another)})), 0, kMaxCalls - 1));
    }
    literal(calls_.section_end, symbols);
    return rule({std::move(symbols)});
  }

  // One production a tool.
  uint32_t write_calls() {
    std::vector<Symbols> productions;
    for (size_t i = 0; i < tools_.size() && !arguments_.error(); ++i) {
      Symbols symbols;
      literal(calls_.call_begin, symbols);
      write_body(i, symbols);
      literal(calls_.call_end, symbols);
      productions.push_back(std::move(symbols));
    }
    return rule(std::move(productions));
  }

  void write_body(size_t tool, Symbols& out) {
    std::string text;
    const auto flush = [&] {
      literal(text, out);
      text.clear();
    };
    for (const char c : calls_.body) {
      if (c == kNamePlace) {
        text += tools_[tool].name;
      } else if (c == kArgumentsPlace) {
        flush();
        arguments_.write(tools_[tool], tool, out);
      } else if (c == kIdPlace || c == kIndexPlace) {
        flush();
        terminal(c == kIdPlace ? id() : index(), out);
      } else {
        text.push_back(c);
      }
    }
    flush();
  }

  ExprId id() { return regex().repeat(regex().byte_class(letters_and_digits()), 9, 9); }
  ExprId index() {
    return regex().repeat(regex().byte_class(grammar::ByteSet::of("0123456789")), 1, 2);
  }

  // gpt-oss: thoughts, and then a call or the final text.
  uint32_t write_messages() {
    const bool calls = options_.choice != ToolChoice::kNone && !tools_.empty();
    std::vector<Symbols> before;
    const auto add_before = [&](std::string_view header) {
      Symbols message;
      literal(header, message);
      free_text(token("<|end|>") == kNoToken ? "<|" : "", message);
      literal("<|end|><|start|>assistant", message);
      before.push_back(std::move(message));
    };
    if (options_.may_think) add_before("<|channel|>analysis<|message|>");
    if (options_.choice != ToolChoice::kRequired && !content_) {
      add_before("<|channel|>commentary<|message|>");  // a preamble of calls, for the user
    }
    std::vector<Symbols> ends;
    if (options_.choice != ToolChoice::kRequired || !calls) {
      Symbols text;
      literal("<|channel|>final<|message|>", text);
      if (content_) text.push_back(Symbol::rule(*content_));
      if (!content_) free_text(token("<|end|>") == kNoToken ? "<|" : "", text);
      ends.push_back(std::move(text));
    }
    for (size_t i = 0; calls && i < tools_.size() && !arguments_.error(); ++i) {
      Symbols call;
      literal(
          "<|channel|>commentary to=functions." + tools_[i].name + " <|constrain|>json<|message|>",
          call);
      arguments_.write(tools_[i], i, call);
      ends.push_back(call);  // the marker is where a model stops, so it may be no token of the text
      literal("<|call|>", call);
      ends.push_back(std::move(call));
    }
    const Symbol thoughts =
        counted_list(rules(), Symbol::rule(rule(std::move(before))), 0, grammar::kUnbounded);
    return rule({{thoughts, Symbol::rule(rule(std::move(ends)))}});
  }

  const ChatFormat& format_;
  const CallFormat& calls_;
  const std::span<const Tool> tools_;
  const AnswerOptions& options_;
  const std::optional<uint32_t> content_;
  ArgumentsGrammar arguments_;
};

}  // namespace

grammar::FormResult<AnswerRules> answer_rules(const ChatFormat& format, std::span<const Tool> tools,
                                              const AnswerOptions& options,
                                              std::optional<grammar::Rules> content) {
  AnswerRules out;
  std::optional<uint32_t> text;
  if (content) {
    out.rules = std::move(*content);
    text = out.rules.start;
  }
  auto error = AnswerGrammar(format, tools, options, out.rules, text).write(out.relaxed);
  if (error) return std::move(*error);
  return out;
}

}  // namespace skein::dialog
