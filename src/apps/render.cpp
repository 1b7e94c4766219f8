#include <cstdio>
#include <ctime>
#include <fmt/format.h>
#include <memory>
#include <string>

#include "apps/commands.h"
#include "apps/files.h"
#include "engine/loading/load_text.h"
#include "generate/prompt.h"

namespace skein::apps {
namespace {

struct RenderOptions {
  std::string model;
  std::string chat_template;
  std::string context;
  std::string now;
  bool ids = false;
};

// "2026-01-02T03:04:05", or the local time when `text` is empty.
Result<std::tm> parse_time(const std::string& text) {
  std::tm time{};
  if (text.empty()) {
    const std::time_t now = std::time(nullptr);
    localtime_r(&now, &time);
    return time;
  }
  const char* end = strptime(text.c_str(), "%Y-%m-%dT%H:%M:%S", &time);
  if (end == nullptr || *end != '\0') {
    return invalid_argument("--now {}: expected a time like 2026-01-02T03:04:05", text);
  }
  return time;
}

Status print(const std::string& bytes) {
  if (std::fwrite(bytes.data(), 1, bytes.size(), stdout) != bytes.size() ||
      std::fflush(stdout) != 0) {
    return data_loss("the prompt could not be written");
  }
  return {};
}

Result<jinja::Rendered> render_context(const ChatTemplate& chat, const RenderOptions& options) {
  SKEIN_ASSIGN(const std::string text, read_file(options.context));
  const auto context = OrderedJson::parse(text, nullptr, false);
  if (!context.is_object()) return invalid_argument("{} is not a JSON object", options.context);
  jinja::RenderOptions settings;
  SKEIN_ASSIGN(settings.now, parse_time(options.now));
  return chat.render(context, settings);
}

Status render_file(const RenderOptions& options) {
  ChatTemplateSource source;
  SKEIN_ASSIGN(source.text, read_file(options.chat_template));
  SKEIN_ASSIGN(const ChatTemplate chat, ChatTemplate::create(source));
  SKEIN_ASSIGN(const jinja::Rendered prompt, render_context(chat, options));
  return print(prompt.text());
}

Status render_model(const RenderOptions& options) {
  SKEIN_ASSIGN(const std::string path, model_path(options.model));
  SKEIN_ASSIGN(const WeightSource source, open_model(path));
  SKEIN_ASSIGN(const ChatTemplate chat, load_chat_template(source));
  SKEIN_ASSIGN(const jinja::Rendered prompt, render_context(chat, options));
  if (!options.ids) return print(prompt.text());
  SKEIN_ASSIGN(const LoadedTokenizer loaded, load_tokenizer(source));
  SKEIN_ASSIGN(const std::vector<TokenId> ids, encode_prompt(loaded.tokenizer, prompt));
  return print(fmt::format("[{}]\n", fmt::join(ids, ", ")));
}

}  // namespace

void add_render(CLI::App& app, CommandResult& result) {
  auto options = std::make_shared<RenderOptions>();
  CLI::App* command = app.add_subcommand("render", "Print the prompt that a conversation becomes");
  auto* source = command->add_option_group("template");
  auto* model =
      source->add_option("--model", options->model, "Take the chat template of this model");
  source->add_option("--template", options->chat_template, "Take this Jinja file");
  source->require_option(1);
  command
      ->add_option("--context", options->context,
                   "JSON file: messages, tools, add_generation_prompt, bos_token, ...")
      ->required();
  command->add_option("--now", options->now, "What strftime_now takes for the time");
  command
      ->add_flag("--ids", options->ids,
                 "Print the prompt's token ids instead, as the model would get them")
      ->needs(model);
  command->callback([options, &result] {
    result = options->model.empty() ? render_file(*options) : render_model(*options);
  });
}

}  // namespace skein::apps
