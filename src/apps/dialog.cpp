#include <cstdio>
#include <fmt/format.h>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "apps/commands.h"
#include "apps/files.h"
#include "base/rng.h"
#include "dialog/answer_parser.h"
#include "dialog/find_format.h"
#include "dialog/history.h"
#include "engine/loading/load_text.h"

namespace skein::apps {
namespace {

struct DialogOptions {
  std::string model, chat_template;
  std::string texts, tools;
  std::optional<uint64_t> chunks;
};

// A template and what was found in it; with a model also its tokenizer.
struct DialogSource {
  ChatTemplateSource source;
  dialog::ChatFormat format;
  std::unique_ptr<Tokenizer> tokenizer;
};

Result<DialogSource> open_dialog(const DialogOptions& options, bool with_tokenizer) {
  DialogSource out;
  if (options.model.empty()) {
    SKEIN_ASSIGN(out.source.text, read_file(options.chat_template));
    out.source.bos_token = "<s>";  // a template may need some
    out.source.eos_token = "</s>";
  } else {
    SKEIN_ASSIGN(const std::string path, model_path(options.model));
    SKEIN_ASSIGN(const WeightSource weights, open_model(path));
    SKEIN_ASSIGN(out.source, read_chat_template(weights));
    if (with_tokenizer) {
      SKEIN_ASSIGN(LoadedTokenizer loaded, load_tokenizer(weights));
      out.tokenizer = std::make_unique<Tokenizer>(std::move(loaded.tokenizer));
    }
  }
  SKEIN_ASSIGN(out.format, dialog::find_format(out.source));
  return out;
}

void print_dialog(const OrderedJson& json, int indent) {
  const std::string text =
      json.dump(indent, ' ', false, OrderedJson::error_handler_t::replace) + "\n";
  std::fwrite(text.data(), 1, text.size(), stdout);
}

// Places in a body, as people can read them.
std::string readable(const std::string& body) {
  std::string out;
  for (const char c : body) {
    switch (c) {
      case dialog::kIndexPlace:
        out += "{index}";
        break;
      case dialog::kIdPlace:
        out += "{id}";
        break;
      case dialog::kNamePlace:
        out += "{name}";
        break;
      case dialog::kArgumentsPlace:
        out += "{arguments}";
        break;
      default:
        out.push_back(c);
    }
  }
  return out;
}

Status dialog_format(const DialogOptions& options) {
  SKEIN_ASSIGN(const DialogSource found, open_dialog(options, false));
  const dialog::CallFormat& calls = found.format.calls;
  const dialog::ReasoningFormat& reasoning = found.format.reasoning;
  const dialog::TemplateHabits& habits = found.format.habits;
  const bool thinks = found.format.reasoning_from != dialog::FormatSource::kGeneric;
  OrderedJson pieces = OrderedJson::object();
  const auto add_piece = [&](const char* name, const std::string& text) {
    if (!text.empty()) pieces[name] = readable(text);
  };
  add_piece("section_begin", calls.section_begin);
  add_piece("call_begin", calls.call_begin);
  add_piece("body", calls.body);
  add_piece("key_begin", calls.key_begin);
  add_piece("key_end", calls.key_end);
  add_piece("key_end_other", calls.key_end_other);
  add_piece("value_end", calls.value_end);
  add_piece("quote", calls.quote);
  add_piece("call_end", calls.call_end);
  add_piece("separator", calls.separator);
  add_piece("section_end", calls.section_end);
  print_dialog(
      {{"format", calls.name},
       {"source", source_name(found.format.calls_from)},
       {"parallel", calls.parallel},
       {"pieces", std::move(pieces)},
       {"reasoning",
        {{"format", reasoning.name},
         {"source", thinks ? OrderedJson(source_name(found.format.reasoning_from)) : OrderedJson()},
         {"begin", reasoning.begin},
         {"end", reasoning.end},
         {"field", reasoning.field}}},
       {"text", {{"begin", found.format.text_begin}, {"end", found.format.text_end}}},
       {"template",
        {{"shows_tools", habits.shows_tools},
         {"writes_calls", habits.writes_calls},
         {"writes_results", habits.writes_results},
         {"arguments", habits.arguments_as_text ? "text" : "object"},
         {"nine_character_ids", habits.nine_character_ids},
         {"takes_system", habits.takes_system},
         {"takes_later_system", habits.takes_later_system}}}},
      2);
  return {};
}

// Reads texts as answers of one model.
class DialogParse {
 public:
  DialogParse(DialogSource found, OrderedJson tools, std::optional<uint64_t> chunks)
      : found_(std::move(found)), tools_(std::move(tools)), chunks_(chunks) {
    auto format = std::make_shared<const dialog::ChatFormat>(found_.format);
    dialog::Markers markers;
    if (found_.tokenizer) markers = dialog::markers_of(*format, *found_.tokenizer);
    syntax_ = std::make_shared<const dialog::AnswerSyntax>(format, std::move(markers),
                                                           dialog::tools_of(tools_));
  }

  Result<OrderedJson> message(const std::string& text, bool thinking, uint64_t number) const {
    SKEIN_ASSIGN(const bool opened, prompt_opens_thought(thinking));
    dialog::AnswerParser parser(syntax_, opened);
    Joined joined;
    std::vector<dialog::DialogEvent> events;
    if (found_.tokenizer) {
      SKEIN_ASSIGN(const std::vector<TokenId> ids,
                   found_.tokenizer->encode(text, {.parse_special = true}));
      for (const TokenId id : ids) {
        parser.push(id, found_.tokenizer->bytes(id), found_.tokenizer->is_control(id), events);
        joined.take(events);
      }
    } else {
      Rng rng(chunks_.value_or(0) ^ number);
      for (size_t at = 0; at < text.size();) {
        const size_t length = chunks_ ? rng.between(1, 12) : text.size();
        parser.push_text(std::string_view(text).substr(at, length), events);
        joined.take(events);
        at += length;
      }
    }
    parser.finish(events);
    joined.take(events);
    return joined.message(number);
  }

 private:
  struct Joined {
    std::string text, reasoning;
    OrderedJson calls = OrderedJson::array();

    void take(const std::vector<dialog::DialogEvent>& events) {
      using Kind = dialog::DialogEvent::Kind;
      for (const dialog::DialogEvent& event : events) {
        if (event.kind == Kind::kText) text += event.text;
        if (event.kind == Kind::kReasoning) reasoning += event.text;
        if (event.kind == Kind::kCallBegin) {
          calls.push_back({{"name", event.text}, {"arguments", ""}});
        }
        if (event.kind == Kind::kArguments) {
          calls.back()["arguments"].get_ref<std::string&>() += event.text;
        }
      }
    }
    OrderedJson message(uint64_t number) const {
      OrderedJson out = {{"role", "assistant"}, {"content", text}};
      if (text.empty() && !calls.empty()) out["content"] = nullptr;
      if (!reasoning.empty()) out["reasoning_content"] = reasoning;
      uint32_t index = 0;
      for (const OrderedJson& call : calls) {
        const std::string id = dialog::call_id(number, index++, dialog::IdStyle::kOpenAi);
        out["tool_calls"].push_back({{"id", id}, {"type", "function"}, {"function", call}});
      }
      return out;
    }
  };

  Result<bool> prompt_opens_thought(bool thinking) const {
    SKEIN_ASSIGN(const ChatTemplate chat, ChatTemplate::create(found_.source));
    const dialog::History history = dialog::prepare_history(
        found_.format, OrderedJson::array({{{"role", "user"}, {"content", "Hello"}}}), tools_);
    const OrderedJson context = {{"messages", history.messages},
                                 {"tools", history.tools},
                                 {"documents", nullptr},
                                 {"add_generation_prompt", true},
                                 {"enable_thinking", thinking}};
    jinja::RenderOptions options;
    options.now.emplace();
    options.now->tm_mday = 1;
    const auto prompt = chat.render(context, options);
    return prompt.ok() && dialog::opens_reasoning(found_.format, prompt->text());
  }

  DialogSource found_;
  OrderedJson tools_;
  std::optional<uint64_t> chunks_;
  std::shared_ptr<const dialog::AnswerSyntax> syntax_;
};

Status dialog_parse(const DialogOptions& options) {
  SKEIN_ASSIGN(DialogSource found, open_dialog(options, true));
  const std::string name = found.format.calls.name;
  OrderedJson tools;
  if (!options.tools.empty()) {
    SKEIN_ASSIGN(const std::string text, read_file(options.tools));
    tools = OrderedJson::parse(text, nullptr, false);
    if (!tools.is_array()) return invalid_argument("{} is not a JSON list of tools", options.tools);
  }
  SKEIN_ASSIGN(const std::string lines, read_file(options.texts));
  const DialogParse parse(std::move(found), std::move(tools), options.chunks);
  OrderedJson texts = OrderedJson::array();
  for (size_t at = 0, number = 1; at < lines.size(); ++number) {
    const size_t end = std::min(lines.find('\n', at), lines.size());
    const std::string written = lines.substr(at, end - at);
    at = end + 1;
    if (written.find_first_not_of(" \t\r") == std::string::npos) continue;
    const OrderedJson line = OrderedJson::parse(written, nullptr, false);
    if (!line.is_object() || !line.contains("text") || !line["text"].is_string()) {
      return invalid_argument("{}:{}: not an object with a text", options.texts, number);
    }
    const auto thinking = line.find("enable_thinking");
    const bool off = thinking != line.end() && *thinking == false;
    SKEIN_ASSIGN(OrderedJson message,
                 parse.message(line["text"].get_ref<const std::string&>(), !off, number));
    texts.push_back({{"message", std::move(message)}});
  }
  print_dialog({{"format", name}, {"texts", std::move(texts)}}, -1);
  return {};
}

void add_dialog_source(CLI::App& command, DialogOptions& options) {
  auto* source = command.add_option_group("template");
  source->add_option("--model", options.model, "GGUF file, Hugging Face folder or name");
  source->add_option("--template", options.chat_template, "A file with a Jinja chat template");
  source->require_option(1);
}

}  // namespace

void add_dialog(CLI::App& app, CommandResult& result) {
  auto options = std::make_shared<DialogOptions>();
  CLI::App* command =
      app.add_subcommand("dialog", "How a model writes calls of tools and its thoughts");
  command->require_subcommand(1);
  command->footer(
      "Formats are found by rendering conversations with the model's own chat template.\n\n"
      "  skein dialog format --model default\n"
      "  skein dialog parse --template chat.jinja --texts answers.jsonl --tools tools.json\n\n"
      "docs/TOOLS.md has the formats and what they rest on.");
  CLI::App* format = command->add_subcommand(
      "format", "Say which formats a chat template has, and where they were found");
  add_dialog_source(*format, *options);
  format->footer(
      "Prints one JSON object. `source` says how the format of calls was found:\n"
      "  template   the template writes calls, and these are its bytes\n"
      "  signature  the template shows tools and names a marker that is known, but writes no "
      "calls\n"
      "  generic    neither: tools are told in a system message, calls are written in Hermes' way\n"
      "`reasoning.source` is null where a model has no thoughts. `template` says what it does "
      "with\n"
      "a history: what it does not write is written as text.");
  format->callback([options, &result] { result = dialog_format(*options); });
  CLI::App* parse =
      command->add_subcommand("parse", "Say which message each of some answers is, as JSON");
  add_dialog_source(*parse, *options);
  parse
      ->add_option("--texts", options->texts, "A file with an object a line: text, enable_thinking")
      ->required();
  parse->add_option("--tools", options->tools, "A JSON file: a list as in `tools` of the API");
  parse->add_option("--chunks", options->chunks, "Feed the text in random pieces of this seed");
  parse->footer(
      "A line's `text` is an answer without the prompt; `enable_thinking` (true unless said) is\n"
      "what the prompt was rendered with, which tells whether the answer begins inside a thought.\n"
      "With a model the text is tokenized, and markers that are tokens count as such; without one\n"
      "they are told by their letters. `--chunks` changes nothing in what is printed.");
  parse->callback([options, &result] { result = dialog_parse(*options); });
}

}  // namespace skein::apps
