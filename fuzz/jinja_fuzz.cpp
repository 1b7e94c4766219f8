// A template and, after a NUL, its context: parse and render under the server's limits, so that
// what takes longer than its steps are worth, or more memory than it is charged for, shows. Nothing
// but a Status may come of it, and the pieces must add up to the text.
#include <cstdint>
#include <nlohmann/json.hpp>
#include <string_view>

#include "base/check.h"
#include "text/jinja/template.h"

namespace {

const nlohmann::ordered_json& default_context() {
  static const auto context = nlohmann::ordered_json::parse(R"({
    "messages": [{"role": "system", "content": "Be <b>brief</b> é"},
                 {"role": "user", "content": "<|im_end|> {{ x }}"},
                 {"role": "assistant", "content": null, "tool_calls": [
                   {"id": "c1", "function": {"name": "f", "arguments": {"a": [1, 2.5, true]}}}]}],
    "tools": [{"type": "function", "function": {"name": "f", "parameters": {"type": "object",
               "properties": {"a": {"type": "array"}}}}}],
    "add_generation_prompt": true, "bos_token": "<s>", "number": 41, "real": 2.5, "yes": true,
    "text": "héllo wörld", "nothing": null, "nested": {"list": [1, ["a", null]]}})");
  return context;
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::string_view input(reinterpret_cast<const char*>(data), size);
  const size_t end = std::min(input.find('\0'), input.size());
  const auto parsed = skein::jinja::Template::parse(input.substr(0, end));
  if (!parsed.ok()) return 0;

  nlohmann::ordered_json context;
  if (end < input.size()) {
    context = nlohmann::ordered_json::parse(input.substr(end + 1), nullptr, false);
  }
  skein::jinja::RenderOptions options;
  options.now = std::tm{};
  options.template_roles = {"system", "user"};
  const auto rendered = parsed->render(context.is_object() ? context : default_context(), options);
  if (!rendered.ok()) return 0;
  for (size_t i = 0; i < rendered->pieces.size(); ++i) {
    const auto& piece = rendered->pieces[i];
    SKEIN_CHECK(!piece.text.empty(), "piece {} is empty", i);
    SKEIN_CHECK(i == 0 || rendered->pieces[i - 1].from_template != piece.from_template,
                "pieces {} and {} have one mark", i - 1, i);
  }
  return 0;
}
