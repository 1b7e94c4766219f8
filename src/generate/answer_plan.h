// AnswerPlan: how the answer to a conversation is bound and how it is read, by the format of the
// model's calls and thoughts, the tools, and the form of its text.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "dialog/answer_grammar.h"
#include "dialog/answer_parser.h"
#include "engine/forms/form_cache.h"
#include "engine/loading/loaded_model.h"

namespace skein {

// What a request says of its answer.
struct AnswerTerms {
  std::vector<dialog::Tool> tools = {};
  // Their numbers, where some that came with them are left out; empty: from 0 on.
  std::vector<size_t> places = {};
  dialog::ToolChoice choice = dialog::ToolChoice::kAuto;
  std::vector<std::string> callable = {};  // names of tools; empty: all of them
  bool parallel = true;                    // more than one call
  std::optional<FormSpec> content = {};    // what a text must look like
  bool may_think = true;                   // else only a thought that the prompt opens is one
  bool parses_reasoning = true;            // else thoughts are text
  bool limits_thought = false;             // a budget is to be kept
};

// A view of the model, which outlives it.
class AnswerPlan {
 public:
  // `in_reasoning`: the prompt has opened a thought.
  AnswerPlan(const LoadedModel& model, AnswerTerms terms, bool in_reasoning);

  // Whether the answer is bound at all; then compile() gives the form, after FormCache::prepare().
  bool has_form() const;
  // Nobody asked for it: where it cannot be had the answer is as good as the model.
  bool form_is_optional() const;
  struct Refusal {
    grammar::FormError error;  // of the tools: `where` begins with the tool's number
    bool of_content = false;   // else of the tools
  };
  std::shared_ptr<const Form> compile(std::optional<Refusal>& refusal, uint64_t tenant = 0) const;

  // How the answer is read; nullptr: all of it is text.
  std::shared_ptr<const dialog::AnswerSyntax> syntax() const;
  bool in_reasoning() const { return in_reasoning_ && terms_.parses_reasoning; }
  // The token that begins a call, where no call may come; else kNoToken.
  TokenId barred() const;
  bool calls() const { return !callable_.empty(); }

 private:
  bool is_harmony() const;
  bool thinks() const;
  std::string key() const;
  grammar::FormResult<FormRules> make_rules(bool& of_content) const;
  std::optional<ThoughtMarkers> thought_markers() const;
  std::string renumbered(std::string_view where) const;
  size_t place_of(size_t tool) const { return terms_.places.empty() ? tool : terms_.places[tool]; }

  const LoadedModel& model_;
  const dialog::ChatFormat& format_;
  const AnswerTerms terms_;
  const bool in_reasoning_;
  std::vector<size_t> callable_;  // of the tools; empty: no calls
};

}  // namespace skein
