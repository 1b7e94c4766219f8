// How a model writes what is not plain text: its calls of tools and its thoughts. Data alone:
// find_format makes it from a chat template, call_writer writes by it, answer_parser reads by it.
//
//   text, lead, section_begin, call_begin body call_end, separator, call_begin body call_end,
//   section_end
//
// The pieces are what the template writes, white space and all, so that a writer can give its
// bytes. A reader takes any white space where they have some.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "text/ordered_json.h"

namespace skein::dialog {

inline constexpr size_t kMaxToolName = 128;
inline constexpr uint32_t kMaxCalls = 64;  // of one answer

enum class CallShape : uint8_t {
  kJson,      // {"name": "F", "arguments": {..}}
  kNameJson,  // F, and then {..}
  kTagged,    // F, and then a tag for every argument
  kLoose,     // F(K='V', N=7), call:F{K:<escape>V<escape>}
  kHarmony,   // messages in channels, a call is one with a recipient
};

enum class FormatSource : uint8_t {
  kTemplate,   // the template wrote calls, and these are its bytes
  kSignature,  // the template shows tools but writes no calls; it names a marker that we know
  kGeneric,    // the template knows no tools: ours
  kOption,     // whoever runs the model has named it
};

// Places in CallFormat::body.
inline constexpr char kIndexPlace = '\x01';      // the call's number in its message
inline constexpr char kIdPlace = '\x02';         // its id
inline constexpr char kNamePlace = '\x03';       // its tool
inline constexpr char kArgumentsPlace = '\x04';  // JSON; tags or assignments in those shapes

struct CallFormat {
  std::string name = "hermes";
  CallShape shape = CallShape::kJson;
  std::string lead;  // between a text and the first call, where we write them
  std::string section_begin, call_begin, call_end, separator, section_end;
  std::string body;
  std::string name_key, arguments_key;  // kJson
  // kTagged: an argument is key_begin K key_end V value_end; where V is no string, the template may
  // write key_end_other. A call without arguments may have a body of its own.
  std::string key_begin, key_end, key_end_other, value_end, empty_body;
  std::string quote;          // kLoose: what stands around a string, where it is no quotation mark
  bool ascii = false;         // characters beyond ASCII are escaped
  bool python_words = false;  // kTagged: True, False and None instead of JSON's
  bool parallel = true;       // the template can write several calls in a message
};

struct ReasoningFormat {
  std::string name = "none";
  std::string begin, end;  // without the white space around them; empty: the model has no thoughts
  std::string field;       // of a message, where the template looks for a thought; may be empty
};

// What a template does with a history. find_format asks it; history.h obeys.
struct TemplateHabits {
  bool shows_tools = false;
  bool writes_calls = false;    // of the history
  bool writes_results = false;  // messages of the role "tool"
  // The marker behind a result, where a result could spell it: empty where it is a token, which no
  // text becomes.
  std::string result_end;
  bool arguments_as_text = false;  // of the history's calls; else an object
  bool null_content = false;       // of a message with calls; else an empty text
  bool nine_character_ids = false;
  bool takes_system = false;        // a system message that is the first
  bool takes_later_system = false;  // a system message that is not the first
};

// Hermes' syntax, for models whose template knows no tools.
CallFormat generic_calls();

struct ChatFormat {
  CallFormat calls = generic_calls();
  ReasoningFormat reasoning;
  FormatSource calls_from = FormatSource::kGeneric;
  FormatSource reasoning_from = FormatSource::kGeneric;  // kGeneric: none was found
  // Markers around a text, where the family has some (<|START_RESPONSE|>); without white space.
  std::string text_begin, text_end;
  bool space_first = false;  // the template writes white space before a text
  TemplateHabits habits;
};

std::string_view source_name(FormatSource source);

// A call of a tool. The arguments are a JSON text; empty counts as {}.
struct ToolCall {
  std::string id;
  std::string name;
  std::string arguments;
};

// A tool that an answer may call.
struct Tool {
  std::string name;
  std::string description;
  OrderedJson parameters;  // a JSON Schema; null: any object
  // true: a schema that cannot be enforced is refused; false: any object; else what can be is.
  std::optional<bool> strict;
  // Of a tool that takes one text: the Lark grammar or the regular expression of it, where it has
  // one. The parameters then have one property, a string.
  std::string lark = {};
  std::optional<std::string> regex = {};
};

}  // namespace skein::dialog
