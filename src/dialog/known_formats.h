// Families that are told by a marker of theirs: names for formats that were found, and formats for
// templates that show tools but write no calls, or for whoever asks for one by its name.
#pragma once

#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "dialog/chat_format.h"

namespace skein::dialog {

// What people call a format, by its shape and its first marker.
std::string name_of(const CallFormat& format);
std::string name_of(const ReasoningFormat& format);

// `literals`: what the template can write by itself.
std::optional<CallFormat> known_calls(std::span<const std::string> literals);
std::optional<ReasoningFormat> known_reasoning(std::span<const std::string> literals);
// By the names that they print as; "generic" and "none" among them.
std::optional<CallFormat> calls_by_name(std::string_view name);
std::optional<ReasoningFormat> reasoning_by_name(std::string_view name);
std::vector<std::string> call_format_names();
std::vector<std::string> reasoning_format_names();
bool is_harmony(std::span<const std::string> literals);
bool has_literal(std::span<const std::string> literals, std::string_view text);

}  // namespace skein::dialog
