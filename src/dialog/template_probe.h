// Renders conversations that hold our own words, and cuts what a template wrote into pieces.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "dialog/chat_format.h"
#include "text/chat_template.h"

namespace skein::dialog {

// Words that no template writes by itself.
inline constexpr std::string_view kProbeUser = "skein_user";
inline constexpr std::string_view kProbeText = "skein_text";
inline constexpr std::string_view kProbeTool = "skein_tool";
inline constexpr std::string_view kProbeThought = "skein_thought";
inline constexpr std::string_view kProbeResult = "skein_result";

class TemplateProbe {
 public:
  explicit TemplateProbe(const ChatTemplate& chat);

  // What the template writes behind the user's last word; nothing where it fails.
  std::optional<std::string> behind_user(OrderedJson messages, bool generation_prompt = false,
                                         std::optional<bool> thinking = std::nullopt) const;
  // All of it.
  std::optional<std::string> render(OrderedJson messages, bool generation_prompt,
                                    std::optional<bool> thinking = std::nullopt) const;

 private:
  const ChatTemplate& chat_;
  OrderedJson tools_;
};

// The tools of every probe, as the template and as the parser want them.
OrderedJson probe_tools();
std::vector<Tool> probe_tool_list();

OrderedJson probe_user();
OrderedJson probe_answer(std::string_view content);
// `as_text`: how the template wants arguments.
OrderedJson probe_calls(const std::vector<ToolCall>& calls, bool as_text,
                        const OrderedJson& content = "");

// A text as markers, words, white space and single bytes: pieces are compared by these, so that
// two markers that begin alike are not cut in the middle.
std::vector<std::string_view> lexemes(std::string_view text);
// The length of the beginning, or end, that two texts share.
size_t common_prefix(std::string_view a, std::string_view b);
size_t common_suffix(std::string_view a, std::string_view b);
// Likewise, of an end whose white space may differ: the length in `a`.
size_t common_turn_end(std::string_view a, std::string_view b);

std::string_view trim(std::string_view text);

}  // namespace skein::dialog
