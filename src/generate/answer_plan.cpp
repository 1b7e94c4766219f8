#include "generate/answer_plan.h"

#include <algorithm>
#include <charconv>
#include <utility>

namespace skein {
namespace {

// Told apart by its length, so that no text can be mistaken for another.
void append_field(std::string& key, std::string_view text) {
  key.append(std::to_string(text.size())).append(":").append(text);
}

}  // namespace

AnswerPlan::AnswerPlan(const LoadedModel& model, AnswerTerms terms, bool in_reasoning)
    : model_(model),
      format_(*model.chat_format()),
      terms_(std::move(terms)),
      in_reasoning_(in_reasoning) {
  if (terms_.choice == dialog::ToolChoice::kNone) return;
  for (size_t i = 0; i < terms_.tools.size(); ++i) {
    const auto& names = terms_.callable;
    const bool named = std::find(names.begin(), names.end(), terms_.tools[i].name) != names.end();
    if (names.empty() || named) callable_.push_back(i);
  }
}

bool AnswerPlan::is_harmony() const {
  return format_.calls.shape == dialog::CallShape::kHarmony;
}

bool AnswerPlan::thinks() const {
  return is_harmony() || !format_.reasoning.end.empty();
}

bool AnswerPlan::has_form() const {
  return calls() || terms_.content || is_harmony() || (terms_.limits_thought && thinks());
}

bool AnswerPlan::form_is_optional() const {
  return !calls() && !terms_.content && !terms_.limits_thought;
}

std::shared_ptr<const Form> AnswerPlan::compile(std::optional<Refusal>& refusal,
                                                uint64_t tenant) const {
  FormCache& forms = *model_.forms();
  bool of_content = false;
  const bool is_plain = !calls() && !thinks();
  auto form = is_plain ? forms.compile(*terms_.content, tenant)
                       : forms.compile(
                             key(), [&] { return make_rules(of_content); }, tenant);
  if (form.ok()) return std::move(form).value();
  refusal = Refusal{form.error(), !calls() || of_content};
  if (refusal->of_content) return nullptr;
  refusal->error.where = renumbered(refusal->error.where);
  if (!terms_.content || !refusal->error.where.empty()) return nullptr;
  // It is all of the rules' together: the tools' fault, unless the text's alone are refused, too.
  const auto alone = forms.compile(*terms_.content, tenant);
  if (!alone.ok()) refusal = Refusal{alone.error(), true};
  return nullptr;
}

std::string AnswerPlan::key() const {
  std::string key = "answer";
  for (const bool flag : {in_reasoning_, terms_.may_think, terms_.parallel,
                          terms_.choice == dialog::ToolChoice::kRequired}) {
    key.push_back(flag ? '1' : '0');
  }
  for (const size_t i : callable_) {
    const dialog::Tool& tool = terms_.tools[i];
    key.push_back(!tool.strict ? 't' : (*tool.strict ? 's' : 'f'));
    append_field(key, std::to_string(place_of(i)));  // stands in what is relaxed
    append_field(key, tool.name);
    append_field(key, tool.lark);
    append_field(key, tool.regex ? "r" + *tool.regex : "");
    append_field(key, tool.parameters.dump(-1, ' ', false, OrderedJson::error_handler_t::replace));
  }
  if (terms_.content) append_field(key, key_of(*terms_.content));
  return key;
}

grammar::FormResult<FormRules> AnswerPlan::make_rules(bool& of_content) const {
  std::optional<grammar::Rules> content;
  std::vector<std::string> relaxed;
  if (terms_.content) {
    auto made = rules_of(*terms_.content, model_.forms()->controls());
    if (!made.ok()) {
      of_content = true;
      return made.error();
    }
    content = std::move(made->rules);
    relaxed = std::move(made->relaxed);
  }
  std::vector<dialog::Tool> tools;
  for (const size_t i : callable_) tools.push_back(terms_.tools[i]);
  const dialog::AnswerOptions options = {
      .choice = calls() ? terms_.choice : dialog::ToolChoice::kNone,
      .parallel = terms_.parallel,
      .in_reasoning = in_reasoning_,
      .may_think = terms_.may_think,
      .tokens = [this](std::string_view text) { return model_.chat_markers().token(text); }};
  auto rules = dialog::answer_rules(format_, tools, options, std::move(content));
  if (!rules.ok()) return rules.error();
  for (const std::string& where : rules->relaxed) relaxed.push_back("/tools" + renumbered(where));
  return FormRules{std::move(rules->rules), std::move(relaxed), thought_markers()};
}

// "/1/properties/a" of the tools that may be called, in the numbers that the client gave.
std::string AnswerPlan::renumbered(std::string_view where) const {
  size_t number = 0;
  if (!where.starts_with('/')) return std::string(where);
  const auto read = std::from_chars(where.data() + 1, where.data() + where.size(), number);
  if (read.ec != std::errc() || number >= callable_.size()) return std::string(where);
  const auto digits = static_cast<size_t>(read.ptr - where.data());
  return "/" + std::to_string(place_of(callable_[number])).append(where.substr(digits));
}

std::optional<ThoughtMarkers> AnswerPlan::thought_markers() const {
  if (!thinks()) return std::nullopt;
  const dialog::Markers& markers = model_.chat_markers();
  std::string begin = is_harmony() ? "<|message|>" : format_.reasoning.begin;
  const auto inside = dialog::markers_in(begin);  // a word may stand behind the marker
  if (!inside.empty() && markers.token(inside[0]) != kNoToken) begin = std::string(inside[0]);
  const std::string end = is_harmony() ? "<|end|>" : format_.reasoning.end;
  ThoughtMarkers out{
      .open = in_reasoning_, .begin = markers.token(begin), .end = markers.token(end)};
  if (is_harmony()) out.begin_text = "analysis";
  if (out.begin == kNoToken) out.begin_text += begin;
  if (out.end == kNoToken) out.end_text = end;
  auto ids = model_.tokenizer()->tokenizer.encode(end, {.parse_special = true});
  if (!ids.ok()) return std::nullopt;
  out.end_ids = std::move(*ids);
  return out;
}

std::shared_ptr<const dialog::AnswerSyntax> AnswerPlan::syntax() const {
  const bool reasons = terms_.parses_reasoning && !format_.reasoning.end.empty();
  if (!calls() && !reasons && !is_harmony() && format_.text_begin.empty()) return nullptr;
  std::shared_ptr<const dialog::ChatFormat> format = model_.chat_format();
  if (!terms_.parses_reasoning) {
    auto without = std::make_shared<dialog::ChatFormat>(*format);
    without->reasoning = {};
    format = std::move(without);
  }
  return std::make_shared<const dialog::AnswerSyntax>(
      std::move(format), model_.chat_markers(),
      calls() ? terms_.tools : std::vector<dialog::Tool>(), calls());
}

TokenId AnswerPlan::barred() const {
  if (calls() || terms_.tools.empty() || is_harmony()) return kNoToken;
  const dialog::CallFormat& call = format_.calls;
  const std::string trigger = call.section_begin + call.call_begin;
  const auto markers = dialog::markers_in(trigger);
  return markers.empty() ? kNoToken : model_.chat_markers().token(markers[0]);
}

}  // namespace skein
