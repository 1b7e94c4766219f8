// Templates, random conversations, and answers read in every way.
#pragma once

#include <fstream>
#include <gtest/gtest.h>
#include <iterator>
#include <string>
#include <string_view>
#include <vector>

#include "base/rng.h"
#include "dialog/answer_parser.h"
#include "dialog/call_writer.h"
#include "dialog/find_format.h"

namespace skein::dialog::testing {

inline ChatTemplateSource template_source(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  EXPECT_TRUE(file.good()) << path;
  ChatTemplateSource source;
  source.text = std::string(std::istreambuf_iterator<char>(file), {});
  source.bos_token = "<s>";
  source.eos_token = "</s>";
  return source;
}

inline std::string own_template(std::string_view name) {
  return std::string(SKEIN_SOURCE_DIR "/tests/dialog/templates/") + std::string(name) + ".jinja";
}

inline ChatFormat must_find(const ChatTemplateSource& source) {
  auto found = find_format(source);
  EXPECT_TRUE(found.ok()) << found.message();
  return *found;
}

// What an answer's events say, joined.
struct Parsed {
  std::string reasoning, text;
  std::vector<ToolCall> calls;
  std::vector<bool> whole;  // by call

  void take(const std::vector<DialogEvent>& events) {
    for (const DialogEvent& event : events) {
      switch (event.kind) {
        case DialogEvent::Kind::kReasoning:
          reasoning += event.text;
          break;
        case DialogEvent::Kind::kText:
          text += event.text;
          break;
        case DialogEvent::Kind::kCallBegin:
          EXPECT_EQ(event.call, calls.size());
          calls.push_back({"", std::string(event.text), ""});
          whole.push_back(false);
          break;
        case DialogEvent::Kind::kArguments:
          ASSERT_EQ(event.call + 1, calls.size());
          EXPECT_FALSE(whole.back());
          calls.back().arguments += event.text;
          break;
        case DialogEvent::Kind::kCallEnd:
          ASSERT_EQ(event.call + 1, calls.size());
          whole.back() = true;
          break;
      }
    }
  }

  // One line, so that two can be compared and printed.
  std::string summary() const {
    std::string out = "[" + reasoning + "][" + text + "]";
    for (size_t i = 0; i < calls.size(); ++i) {
      out += " " + calls[i].name + calls[i].arguments + (whole[i] ? "" : "...");
    }
    return out;
  }
};

using Syntax = std::shared_ptr<const AnswerSyntax>;

inline Syntax syntax_of(const ChatFormat& format, std::vector<Tool> tools = {}) {
  return std::make_shared<const AnswerSyntax>(std::make_shared<const ChatFormat>(format), Markers(),
                                              std::move(tools));
}

// `cuts`: ascending places at which the text is cut.
inline Parsed parse(const Syntax& syntax, std::string_view text,
                    const std::vector<size_t>& cuts = {}, bool in_reasoning = false) {
  AnswerParser parser(syntax, in_reasoning);
  Parsed parsed;
  std::vector<DialogEvent> events;
  size_t at = 0;
  for (const size_t cut : cuts) {
    parser.push_text(text.substr(at, cut - at), events);
    parsed.take(events);
    at = cut;
  }
  parser.push_text(text.substr(at), events);
  parsed.take(events);
  parser.finish(events);
  parsed.take(events);
  return parsed;
}

// Whole, byte by byte, at every place in two, and in random pieces: always the same.
inline Parsed parse_in_every_way(const Syntax& syntax, std::string_view text, Rng& rng,
                                 bool in_reasoning = false) {
  const Parsed whole = parse(syntax, text, {}, in_reasoning);
  std::vector<size_t> every;
  for (size_t i = 1; i < text.size(); ++i) {
    every.push_back(i);
    EXPECT_EQ(parse(syntax, text, {i}, in_reasoning).summary(), whole.summary())
        << "cut at " << i << " of " << text;
  }
  EXPECT_EQ(parse(syntax, text, every, in_reasoning).summary(), whole.summary()) << text;
  for (int round = 0; round < 10; ++round) {
    std::vector<size_t> cuts;
    for (size_t i = 1; i < text.size(); ++i) {
      if (rng.below(5) == 0) cuts.push_back(i);
    }
    EXPECT_EQ(parse(syntax, text, cuts, in_reasoning).summary(), whole.summary()) << text;
  }
  return whole;
}

}  // namespace skein::dialog::testing
