#include <cstdio>
#include <fstream>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "apps/commands.h"
#include "apps/files.h"
#include "engine/loading/load_text.h"
#include "format/weight_source.h"

namespace skein::apps {
namespace {

struct TokenizeOptions {
  std::string model;
  std::string text;
  std::string jsonl;
  EncodeOptions encode;
};

Status print_ids(const Tokenizer& tokenizer, std::string_view text, EncodeOptions options) {
  SKEIN_ASSIGN(const std::vector<TokenId> ids, tokenizer.encode(text, options));
  std::string line = "[";
  for (const TokenId id : ids) {
    if (line.size() > 1) line += ", ";
    line += std::to_string(id);
  }
  line += "]\n";
  std::fwrite(line.data(), 1, line.size(), stdout);
  return {};
}

Status tokenize_lines(const Tokenizer& tokenizer, const TokenizeOptions& options) {
  std::ifstream in(options.jsonl, std::ios::binary);
  if (!in) return not_found("{}: cannot be read", options.jsonl);
  std::string line;
  for (size_t number = 1; std::getline(in, line); ++number) {
    const auto text = nlohmann::json::parse(line, nullptr, false);
    if (!text.is_string()) {
      return invalid_argument("{}:{}: the line is not a JSON string", options.jsonl, number);
    }
    SKEIN_TRY(print_ids(tokenizer, text.get_ref<const std::string&>(), options.encode));
  }
  return {};
}

Status tokenize(const TokenizeOptions& options) {
  SKEIN_ASSIGN(const std::string path, model_path(options.model));
  SKEIN_ASSIGN(const WeightSource source, open_model(path));
  SKEIN_ASSIGN(const LoadedTokenizer loaded, load_tokenizer(source));
  if (!options.jsonl.empty()) return tokenize_lines(loaded.tokenizer, options);
  return print_ids(loaded.tokenizer, options.text, options.encode);
}

}  // namespace

void add_tokenize(CLI::App& app, CommandResult& result) {
  auto options = std::make_shared<TokenizeOptions>();
  CLI::App* command =
      app.add_subcommand("tokenize", "Print the token ids of a text, one JSON array a line");
  command->add_option("--model", options->model, "GGUF file, Hugging Face folder or name")
      ->required();
  auto* input = command->add_option_group("input");
  input->add_option("--text", options->text, "The text");
  input->add_option("--jsonl", options->jsonl, "A file with one JSON string a line");
  input->require_option(1);
  command->add_flag("--parse-special", options->encode.parse_special,
                    "Control tokens spelled out in the text become those tokens");
  command->add_flag("--add-special", options->encode.add_special,
                    "Put what the model expects around a text");
  command->callback([options, &result] { result = tokenize(*options); });
}

}  // namespace skein::apps
