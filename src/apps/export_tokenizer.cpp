// `skein export-tokenizer`: the files by which other programs render and tokenize for a model as
// skein does, also where all that there is of it is a GGUF file.
#include <cstdio>
#include <filesystem>
#include <fmt/format.h>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <system_error>

#include "apps/commands.h"
#include "apps/files.h"
#include "engine/loading/load_text.h"
#include "format/weight_source.h"
#include "text/tokenizer_json_writer.h"

namespace skein::apps {
namespace {

namespace fs = std::filesystem;
using ExportJson = nlohmann::ordered_json;

struct ExportOptions {
  std::string model;
  std::string folder;
};

// What a Hugging Face folder has of them; the first three must be there.
constexpr const char* kFiles[] = {"config.json",           "tokenizer.json",
                                  "tokenizer_config.json", "generation_config.json",
                                  "chat_template.jinja",   "special_tokens_map.json"};
constexpr size_t kNeeded = 3;

Status copy_files(const std::string& from, const fs::path& to) {
  for (size_t i = 0; i < std::size(kFiles); ++i) {
    const fs::path source = fs::path(from) / kFiles[i];
    std::error_code error;
    if (!fs::exists(source, error)) {
      if (i < kNeeded) return not_found("{} has no {}", from, kFiles[i]);
      continue;
    }
    fs::copy_file(source, to / kFiles[i], fs::copy_options::overwrite_existing, error);
    if (error) return data_loss("{}: {}", (to / kFiles[i]).string(), error.message());
  }
  return {};
}

// Of what a GGUF file says as much as is asked of a config.json by those who do not load weights.
Result<ExportJson> config_of(const WeightSource& source, const LoadedTokenizer& loaded) {
  const gguf::Metadata& metadata = source.metadata();
  SKEIN_ASSIGN(const std::string_view family,
               metadata.get<std::string_view>("general.architecture"));
  ExportJson config = {{"architectures", {fmt::format("{}ForCausalLM", family)}},
                       {"model_type", family},
                       {"vocab_size", loaded.tokenizer.vocab_size()}};
  const std::pair<const char*, const char*> numbers[] = {
      {"max_position_embeddings", "context_length"},
      {"hidden_size", "embedding_length"},
      {"num_hidden_layers", "block_count"},
      {"num_attention_heads", "attention.head_count"}};
  for (const auto& [name, key] : numbers) {
    const std::string full = fmt::format("{}.{}", family, key);
    if (!metadata.has(full)) continue;
    const auto value = metadata.get<uint32_t>(full);
    if (value.ok()) config[name] = *value;
  }
  if (loaded.bos != kNoToken) config["bos_token_id"] = loaded.bos;
  config["eos_token_id"] = loaded.stop_ids;
  return config;
}

ExportJson tokenizer_config_of(const ChatTemplateSource& chat, const TokenizerSpec& spec) {
  ExportJson config = {{"tokenizer_class", "PreTrainedTokenizerFast"},
                       {"clean_up_tokenization_spaces", false},
                       {"add_bos_token", !spec.prefix.empty()},
                       {"add_eos_token", !spec.suffix.empty()}};
  if (!chat.bos_token.empty()) config["bos_token"] = chat.bos_token;
  if (!chat.eos_token.empty()) config["eos_token"] = chat.eos_token;
  if (chat.text) config["chat_template"] = *chat.text;
  return config;
}

Status write_files(const WeightSource& source, const fs::path& to) {
  SKEIN_ASSIGN(const LoadedTokenizer loaded, load_tokenizer(source));
  SKEIN_ASSIGN(const TokenizerSpec spec, read_tokenizer_spec(source));
  SKEIN_ASSIGN(const ChatTemplateSource chat, read_chat_template(source));
  SKEIN_ASSIGN(const ExportJson config, config_of(source, loaded));
  const auto tokenizer = write_tokenizer_json(spec);
  if (!tokenizer.ok()) {
    return Status(tokenizer.status().code(),
                  fmt::format("{}: its tokenizer cannot be written as a tokenizer.json: {}",
                              source.path(), tokenizer.message()));
  }
  SKEIN_TRY(write_file(to / "tokenizer.json", *tokenizer));
  SKEIN_TRY(write_file(to / "tokenizer_config.json", tokenizer_config_of(chat, spec).dump(2)));
  return write_file(to / "config.json", config.dump(2));
}

Status export_tokenizer(const ExportOptions& options) {
  SKEIN_ASSIGN(const std::string path, model_path(options.model));
  SKEIN_ASSIGN(const WeightSource source, open_model(path));
  std::error_code error;
  fs::create_directories(options.folder, error);
  if (error) return unavailable("{}: {}", options.folder, error.message());
  SKEIN_TRY(source.kind() == SourceKind::kGguf ? write_files(source, options.folder)
                                               : copy_files(path, options.folder));
  std::printf("%s\n", options.folder.c_str());
  return {};
}

}  // namespace

void add_export_tokenizer(CLI::App& app, CommandResult& result) {
  auto options = std::make_shared<ExportOptions>();
  CLI::App* command = app.add_subcommand(
      "export-tokenizer",
      "Write tokenizer.json, tokenizer_config.json and config.json, by which others tokenize");
  command->add_option("model", options->model, "GGUF file, Hugging Face folder or name")
      ->required();
  command->add_option("folder", options->folder, "Where they go; it is made")->required();
  command->callback([options, &result] { result = export_tokenizer(*options); });
}

}  // namespace skein::apps
