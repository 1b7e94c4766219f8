// Families that are told by a marker of theirs: names for formats that were found, and formats for
// templates that show tools but write no calls.
#pragma once

#include <optional>
#include <span>
#include <string>
#include <string_view>

#include "dialog/chat_format.h"

namespace skein::dialog {

// What people call a format, by its shape and its first marker.
std::string name_of(const CallFormat& format);
std::string name_of(const ReasoningFormat& format);

// `literals`: what the template can write by itself.
std::optional<CallFormat> known_calls(std::span<const std::string> literals);
std::optional<ReasoningFormat> known_reasoning(std::span<const std::string> literals);
bool is_harmony(std::span<const std::string> literals);
bool has_literal(std::span<const std::string> literals, std::string_view text);

}  // namespace skein::dialog
