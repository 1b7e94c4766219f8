// What an answer may be, as rules: a thought, which is free, then text that is free until a call
// begins, then calls whose names and arguments are bound to the tools in the format's own syntax.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "dialog/chat_format.h"
#include "grammar/rules.h"

namespace skein::dialog {

enum class ToolChoice : uint8_t {
  kNone,      // text alone
  kAuto,      // text, calls, or a text and then calls
  kRequired,  // calls alone; a tool that is named, or some that are allowed: those are the tools
};

struct AnswerOptions {
  ToolChoice choice = ToolChoice::kAuto;
  bool parallel = true;       // more than one call
  bool in_reasoning = false;  // the prompt has opened a thought
  bool may_think = true;      // else only a thought that the prompt has opened is one
  // The markers that are tokens of their own in the model's vocabulary; without it they are bytes.
  grammar::ControlTokens tokens = {};
};

struct AnswerRules {
  grammar::Rules rules;
  // What is not enforced of the tools' schemas: "/0/properties/a/not" is of the first tool.
  std::vector<std::string> relaxed;
};

// Errors are those of the tools' schemas; `where` begins with the tool's number, as above. Text is
// what `content` says, where that is given: then no thought stands behind the first.
grammar::FormResult<AnswerRules> answer_rules(const ChatFormat& format, std::span<const Tool> tools,
                                              const AnswerOptions& options,
                                              std::optional<grammar::Rules> content = {});

}  // namespace skein::dialog
