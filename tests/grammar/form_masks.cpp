// What a form allows, for a test that has another opinion to compare with: reads lines
// {"kind": "regex" | "schema" | "gbnf", "form", "seed", "walks", "steps"} and answers each with
// {"error"} or {"walks": [{"text", "masks", "ends"}]}: random texts, and in front of every byte of
// them and behind the last the bytes that may follow (64 hexadecimal digits, byte 0 first) and
// whether the text may end. Texts are in hexadecimal digits as well. {"texts": [..]} are walked
// instead of random ones where the line has them, as far as they are allowed.
#include <fmt/format.h>
#include <iostream>
#include <nlohmann/json.hpp>
#include <random>

#include "grammar/choice.h"
#include "grammar/compiled_grammar.h"
#include "grammar/gbnf.h"
#include "grammar/json_schema.h"

namespace skein::grammar {
namespace {

using Json = nlohmann::json;

FormResult<Rules> rules_of(const std::string& kind, const std::string& form) {
  if (kind == "regex") return regex_rules(form);
  if (kind == "gbnf") return gbnf_rules(form);
  FormResult<SchemaRules> schema = json_schema_rules(form, {.strict = true, .white_space = ""});
  if (!schema.ok()) return schema.error();
  return std::move(schema->rules);
}

std::string hexadecimal(std::string_view bytes) {
  std::string text;
  for (const char c : bytes) text += fmt::format("{:02x}", static_cast<uint8_t>(c));
  return text;
}

// Chooses the next byte among those that may come: letters rather than rare bytes.
int next_byte(const TokenMask& mask, std::mt19937& random) {
  std::vector<int> allowed;
  for (int b = 0; b < 256; ++b) {
    if (!mask.has(b)) continue;
    allowed.insert(allowed.end(), b >= 0x20 && b < 0x7F ? 8 : 1, b);
  }
  return allowed.empty() ? -1 : allowed[random() % allowed.size()];
}

Json walk(const std::shared_ptr<CompiledGrammar>& grammar, std::mt19937& random, size_t steps,
          const std::string* given) {
  Matcher matcher(grammar);
  Json masks = Json::array(), ends = Json::array();
  for (size_t i = 0;; ++i) {
    const TokenMask* mask = matcher.mask();
    if (mask == nullptr) return {{"error", "a mask takes too much work"}};
    std::string bits;
    for (int b = 0; b < 256; b += 8) {
      int byte = 0;
      for (int k = 0; k < 8; ++k) byte |= (mask->has(b + k) ? 1 : 0) << k;
      bits += static_cast<char>(byte);
    }
    masks.push_back(hexadecimal(bits));
    ends.push_back(matcher.may_end());
    if (given != nullptr ? i >= given->size() : i >= steps) break;
    const int next =
        given != nullptr ? static_cast<uint8_t>((*given)[i]) : next_byte(*mask, random);
    if (next < 0 || !matcher.advance(next)) break;
  }
  return {{"text", hexadecimal(matcher.text())}, {"masks", masks}, {"ends", ends}};
}

Json answer(const Json& line, const std::shared_ptr<const TokenTrie>& trie) {
  FormResult<Rules> rules =
      rules_of(line["kind"].get<std::string>(), line["form"].get<std::string>());
  if (!rules.ok()) return {{"error", rules.error().message}};
  auto grammar = compile(std::move(*rules), trie);
  if (!grammar.ok()) return {{"error", grammar.error().message}};
  std::mt19937 random(line.value("seed", 0u));
  Json walks = Json::array();
  for (const Json& text : line.value("texts", Json::array())) {
    const auto given = text.get<std::string>();
    walks.push_back(walk(*grammar, random, 0, &given));
  }
  for (size_t i = line.value("walks", size_t{0}); i > 0; --i) {
    walks.push_back(walk(*grammar, random, line.value("steps", size_t{40}), nullptr));
  }
  return {{"walks", walks}};
}

int run() {
  std::vector<std::string> tokens;
  tokens.reserve(256);
  for (int b = 0; b < 256; ++b) tokens.emplace_back(1, static_cast<char>(b));
  const auto trie = TokenTrie::make(std::move(tokens));
  for (std::string line; std::getline(std::cin, line);) {
    std::cout << answer(Json::parse(line), *trie).dump() << '\n' << std::flush;
  }
  return 0;
}

}  // namespace
}  // namespace skein::grammar

int main() {
  return skein::grammar::run();
}
