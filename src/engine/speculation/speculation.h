// How a request's next tokens are guessed at, so that several can be computed at once.
#pragma once

#include <cstdint>
#include <optional>
#include <string_view>

namespace skein {

enum class Speculation : uint8_t {
  kOff,
  kNgram,  // from what the text and the tenant's earlier answers said before
  kAuto,   // likewise, and by a draft model where there is one; where that pays at all
};

// As options and requests name it; nothing: another word.
constexpr std::optional<Speculation> speculation_of(std::string_view name) {
  if (name == "off") return Speculation::kOff;
  if (name == "ngram") return Speculation::kNgram;
  if (name == "auto") return Speculation::kAuto;
  return std::nullopt;
}

// Guesses of a step, of all requests together: as many rows of logits more.
inline constexpr uint32_t kStepDrafts = 32;

}  // namespace skein
