#include <chrono>
#include <cstdio>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <unordered_map>
#include <vector>

#include "apps/commands.h"
#include "apps/files.h"
#include "engine/loading/load_text.h"
#include "format/weight_source.h"
#include "grammar/choice.h"
#include "grammar/compiled_grammar.h"
#include "grammar/gbnf.h"
#include "grammar/json_schema.h"
#include "grammar/lark.h"

namespace skein::apps {
namespace {

using Json = nlohmann::ordered_json;

struct GrammarCheckOptions {
  std::string schema, regex, gbnf, lark;
  std::string texts;
  std::string model, vocab;
  std::optional<std::string> white_space;
  bool strict = false, open = false, trace = false;
};

double microseconds() {
  const auto now = std::chrono::steady_clock::now().time_since_epoch();
  return std::chrono::duration<double, std::micro>(now).count();
}

// The tokens of a check: a model's, a file's, or the bytes.
class CheckTokens {
 public:
  static Result<CheckTokens> load(const GrammarCheckOptions& options) {
    CheckTokens result;
    std::vector<std::string> tokens;
    if (!options.model.empty()) {
      SKEIN_ASSIGN(const std::string path, model_path(options.model));
      SKEIN_ASSIGN(const WeightSource source, open_model(path));
      SKEIN_ASSIGN(LoadedTokenizer loaded, load_tokenizer(source));
      const Tokenizer& tokenizer = loaded.tokenizer;
      for (TokenId id = 0; id < static_cast<TokenId>(tokenizer.vocab_size()); ++id) {
        tokens.emplace_back(tokenizer.is_control(id) ? "" : tokenizer.bytes(id));
      }
      result.tokenizer_ = std::make_unique<Tokenizer>(std::move(loaded.tokenizer));
    } else if (!options.vocab.empty()) {
      SKEIN_ASSIGN(const std::string bytes, read_file(options.vocab));
      for (size_t i = 0; i < bytes.size(); i += 1 + static_cast<uint8_t>(bytes[i])) {
        tokens.push_back(bytes.substr(i + 1, static_cast<uint8_t>(bytes[i])));
      }
    } else {
      for (int b = 0; b < 256; ++b) tokens.emplace_back(1, static_cast<char>(b));
    }
    for (size_t i = 0; i < tokens.size(); ++i) {
      if (!tokens[i].empty()) result.ids_.emplace(tokens[i], static_cast<TokenId>(i));
      result.longest_ = std::max(result.longest_, tokens[i].size());
    }
    SKEIN_ASSIGN(result.trie_, grammar::TokenTrie::make(std::move(tokens)));
    return result;
  }

  const std::shared_ptr<const grammar::TokenTrie>& trie() const { return trie_; }
  bool strips_leading_space() const {
    return tokenizer_ != nullptr && tokenizer_->strips_leading_space();
  }
  TokenId control(std::string_view name) const {
    const TokenId id = tokenizer_ != nullptr ? tokenizer_->find(name) : kNoToken;
    return id != kNoToken && tokenizer_->is_control(id) ? id : kNoToken;
  }

  // As a line of the texts says, else as the tokenizer does, else the longest match.
  Result<std::vector<TokenId>> cut(const Json& line, const std::string& text) const {
    std::vector<TokenId> ids;
    if (line.contains("tokens") && line["tokens"].is_array()) {
      for (const Json& id : line["tokens"]) {
        if (!id.is_number_integer() || id.get<int64_t>() < 0 ||
            id.get<int64_t>() >= trie_->size()) {
          return invalid_argument("a token is not an id below {}", trie_->size());
        }
        ids.push_back(id.get<TokenId>());
      }
      return ids;
    }
    if (tokenizer_ != nullptr) return tokenizer_->encode(text);
    for (size_t at = 0; at < text.size();) {
      size_t length = std::min(longest_, text.size() - at);
      auto found = ids_.find(text.substr(at, length));
      while (found == ids_.end() && length > 1) found = ids_.find(text.substr(at, --length));
      if (found == ids_.end()) return invalid_argument("no token for the byte at {}", at);
      ids.push_back(found->second);
      at += length;
    }
    return ids;
  }

 private:
  std::unique_ptr<Tokenizer> tokenizer_;
  std::shared_ptr<const grammar::TokenTrie> trie_;
  std::unordered_map<std::string, TokenId> ids_;
  size_t longest_ = 0;
};

struct CheckedForm {
  std::shared_ptr<grammar::CompiledGrammar> grammar;
  std::vector<std::string> relaxed;
};

grammar::FormResult<CheckedForm> compile_form(const GrammarCheckOptions& options,
                                              const std::string& text, const CheckTokens& tokens) {
  const auto controls = [&](std::string_view name) { return tokens.control(name); };
  CheckedForm form;
  grammar::Rules rules;
  if (!options.schema.empty()) {
    auto read = grammar::json_schema_rules(
        text, {.strict = options.strict, .open = options.open, .white_space = options.white_space});
    if (!read.ok()) return read.error();
    form.relaxed = read->relaxed;
    rules = std::move(read->rules);
  } else {
    auto read = !options.regex.empty()  ? grammar::regex_rules(text)
                : !options.gbnf.empty() ? grammar::gbnf_rules(text, controls)
                                        : grammar::lark_rules(text, controls);
    if (!read.ok()) return read.error();
    rules = std::move(*read);
  }
  auto compiled = grammar::compile(std::move(rules), tokens.trie());
  if (!compiled.ok()) return compiled.error();
  form.grammar = *compiled;
  return form;
}

Json checked_text(grammar::Matcher matcher, const std::vector<TokenId>& tokens, bool trace) {
  Json mask_us = Json::array(), accept_us = Json::array();
  bool accepted = true;
  for (const TokenId token : tokens) {
    const double begin = microseconds();
    const grammar::TokenMask* mask = trace ? matcher.mask() : nullptr;
    const double made = microseconds();
    accepted = (!trace || (mask != nullptr && mask->has(token))) && matcher.advance(token);
    mask_us.push_back(made - begin);
    accept_us.push_back(microseconds() - made);
    if (!accepted) break;
  }
  Json result = {{"accepted", accepted}, {"ended", accepted && matcher.may_end()}};
  if (trace) {
    result["mask_us"] = std::move(mask_us);
    result["accept_us"] = std::move(accept_us);
  }
  return result;
}

void print_check(const Json& json) {
  const std::string text = json.dump(-1, ' ', false, Json::error_handler_t::replace) + "\n";
  std::fwrite(text.data(), 1, text.size(), stdout);
}

Status grammar_check(const GrammarCheckOptions& options) {
  SKEIN_ASSIGN(const CheckTokens tokens, CheckTokens::load(options));
  const std::string& path = !options.schema.empty()  ? options.schema
                            : !options.regex.empty() ? options.regex
                            : !options.gbnf.empty()  ? options.gbnf
                                                     : options.lark;
  SKEIN_ASSIGN(std::string text, read_file(path));
  // Editors end a file with a new line, which is no part of an expression.
  if (!options.regex.empty() && text.ends_with('\n')) text.pop_back();
  if (!options.regex.empty() && text.ends_with('\r')) text.pop_back();
  SKEIN_ASSIGN(const std::string lines, read_file(options.texts));
  const double begin = microseconds();
  auto form = compile_form(options, text, tokens);
  if (!form.ok()) {
    const grammar::FormError& error = form.error();
    print_check({{"error",
                  {{"code", form_code_name(error.code)},
                   {"message", error.message},
                   {"param", error.where}}}});
    return invalid_argument("{}: {}", path, error.message);
  }
  if (options.trace) grammar::Matcher(form->grammar).mask();
  const double compile_us = microseconds() - begin;
  Json texts = Json::array();
  for (size_t at = 0, number = 1; at < lines.size(); ++number) {
    const size_t end = std::min(lines.find('\n', at), lines.size());
    const std::string written = lines.substr(at, end - at);
    at = end + 1;
    if (written.find_first_not_of(" \t\r") == std::string::npos) continue;
    const Json line = Json::parse(written, nullptr, false);
    if (!line.is_object() || !line.contains("text") || !line["text"].is_string()) {
      return invalid_argument("{}:{}: not an object with a text", options.texts, number);
    }
    SKEIN_ASSIGN(const std::vector<TokenId> ids,
                 tokens.cut(line, line["text"].get_ref<const std::string&>()));
    texts.push_back(checked_text(grammar::Matcher(form->grammar, tokens.strips_leading_space()),
                                 ids, options.trace));
  }
  Json result = {{"relaxed", form->relaxed}, {"texts", std::move(texts)}};
  if (options.trace) result["compile_us"] = compile_us;
  print_check(result);
  return {};
}

}  // namespace

void add_grammar(CLI::App& app, CommandResult& result) {
  auto options = std::make_shared<GrammarCheckOptions>();
  CLI::App* command = app.add_subcommand("grammar", "Forms that an answer can be bound to");
  command->require_subcommand(1);
  CLI::App* check =
      command->add_subcommand("check", "Say which texts a form takes, as one JSON object");
  auto* form = check->add_option_group("form");
  form->add_option("--schema", options->schema, "A file with a JSON Schema");
  form->add_option("--regex", options->regex, "A file with a regular expression");
  form->add_option("--gbnf", options->gbnf, "A file with a GBNF grammar");
  form->add_option("--lark", options->lark, "A file with a Lark grammar");
  form->require_option(1);
  check->add_option("--texts", options->texts, "A file with an object a line: text, tokens")
      ->required();
  auto* vocabulary = check->add_option_group("vocabulary");
  vocabulary->add_option("--model", options->model, "GGUF file, Hugging Face folder or name");
  vocabulary->add_option("--vocab", options->vocab,
                         "A file with a byte of length and the bytes of every token");
  vocabulary->require_option(0, 1);
  check->add_flag("--strict", options->strict, "Refuse keywords that cannot be enforced");
  check->add_flag("--open", options->open, "Objects that list properties take others as well");
  check->add_option("--white-space", options->white_space,
                    "A pattern of what may stand between the parts of a document");
  check->add_flag("--trace", options->trace, "Make every mask, and say how long it took");
  check->callback([options, &result] { result = grammar_check(*options); });
}

}  // namespace skein::apps
