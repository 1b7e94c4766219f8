#include "text/chat_template.h"

#include <nlohmann/json.hpp>

namespace skein {
namespace {

// Most models without a template of their own understand this one. Content may be text or parts.
constexpr std::string_view kChatMl =
    "{%- for message in messages -%}"
    "{{- '<|im_start|>' ~ message.role ~ '\n' -}}"
    "{%- if message.content is string -%}{{- message.content -}}"
    "{%- elif message.content -%}"
    "{%- for part in message.content if part.text is defined -%}{{- part.text -}}{%- endfor -%}"
    "{%- endif -%}"
    "{{- '<|im_end|>\n' -}}"
    "{%- endfor -%}"
    "{%- if add_generation_prompt -%}{{- '<|im_start|>assistant\n' -}}{%- endif -%}";

Result<jinja::Template> parse(std::string_view name, std::string_view text) {
  Result<jinja::Template> parsed = jinja::Template::parse(text);
  if (parsed.ok()) return parsed;
  return Status(parsed.status().code(), fmt::format("{}: {}", name, parsed.message()));
}

bool has_tools(const OrderedJson& context) {
  const auto tools = context.find("tools");
  return tools != context.end() && tools->is_array() && !tools->empty();
}

}  // namespace

std::vector<std::string> literals_of(const ChatTemplateSource& source) {
  std::vector<std::string> out = jinja::literals_of(source.text ? *source.text : kChatMl);
  if (source.tool_use) {
    for (std::string& text : jinja::literals_of(*source.tool_use)) out.push_back(std::move(text));
  }
  out.push_back(source.bos_token);
  out.push_back(source.eos_token);
  return out;
}

Result<ChatTemplate> ChatTemplate::create(const ChatTemplateSource& source) {
  SKEIN_ASSIGN(jinja::Template chat,
               parse("the chat template", source.text ? *source.text : kChatMl));
  ChatTemplate out(std::move(chat));
  if (source.tool_use) {
    SKEIN_ASSIGN(out.tool_use_, parse("the chat template 'tool_use'", *source.tool_use));
  }
  if (!source.bos_token.empty()) out.tokens_.emplace_back("bos_token", source.bos_token);
  if (!source.eos_token.empty()) out.tokens_.emplace_back("eos_token", source.eos_token);
  return out;
}

Result<jinja::Rendered> ChatTemplate::render(const OrderedJson& context,
                                             jinja::RenderOptions options) const {
  options.template_variables = tokens_;
  options.template_roles = {"system", "user",     "assistant", "tool",
                            "model",  "function", "developer", "ipython"};
  const bool use_tools = tool_use_ && context.is_object() && has_tools(context);
  return (use_tools ? *tool_use_ : chat_).render(context, options);
}

}  // namespace skein
