#include "server/api/prompt_fields.h"

namespace skein::api {
namespace {

constexpr std::string_view kPromptForms =
    "A string, a list of strings, a list of token ids or a list of such lists is expected here.";

void read_prompt_ids(const json::Value& list, const std::string& path, Problem& problem,
                     std::vector<Prompt>& prompts) {
  if (list.empty()) {
    problem = invalid_field(path, "At least one token is needed here.");
    return;
  }
  prompts.emplace_back(read_token_ids(list, path, problem));
}

}  // namespace

std::vector<Prompt> read_prompts(const Fields& fields, std::string_view name, size_t max_items) {
  std::vector<Prompt> prompts;
  const json::Value* prompt = fields.find(name);
  if (prompt == nullptr) return fields.missing(name), prompts;
  if (prompt->is_string()) {
    prompts.emplace_back(prompt->get<std::string>());
    return prompts;
  }
  if (!prompt->is_array() || prompt->empty()) {
    fields.fail(name, std::string(kPromptForms));
    return prompts;
  }
  if (prompt->front().is_number()) {
    read_prompt_ids(*prompt, fields.path_of(name), fields.problem(), prompts);
    return prompts;
  }
  fields.for_each(name, max_items, [&](const json::Value& item, const std::string& path) {
    const bool alike = item.type() == prompt->front().type();
    if (alike && item.is_string()) {
      prompts.emplace_back(item.get<std::string>());
    } else if (alike && item.is_array()) {
      read_prompt_ids(item, path, fields.problem(), prompts);
    } else {
      fields.problem() = invalid_field(path, std::string(kPromptForms));
    }
  });
  return prompts;
}

}  // namespace skein::api
