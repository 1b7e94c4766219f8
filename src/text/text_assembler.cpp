#include "text/text_assembler.h"

#include <algorithm>
#include <utility>

#include "text/utf8.h"

namespace skein {

Result<StopMatcher> StopMatcher::create(std::vector<std::string> stops) {
  if (stops.size() > kMaxStops) {
    return invalid_argument("{} stop strings, at most {} are taken", stops.size(), kMaxStops);
  }
  StopMatcher matcher;
  for (std::string& text : stops) {
    if (text.empty()) return invalid_argument("a stop string is empty");
    if (text.size() > kMaxStopBytes) {
      return invalid_argument("a stop string has {} bytes, at most {} are taken", text.size(),
                              kMaxStopBytes);
    }
    if (utf8_repaired(text) != text) return invalid_argument("a stop string is not UTF-8");
    std::vector<uint16_t> fallback(text.size() + 1, 0);
    uint16_t border = 0;
    for (size_t i = 1; i < text.size(); ++i) {
      while (border > 0 && text[i] != text[border]) border = fallback[border];
      if (text[i] == text[border]) ++border;
      fallback[i + 1] = border;
    }
    matcher.stops_.push_back({std::move(text), std::move(fallback)});
  }
  return matcher;
}

bool StopMatcher::push(char byte) {
  bool found = false;
  pending_ = 0;
  for (size_t i = 0; i < stops_.size(); ++i) {
    Stop& stop = stops_[i];
    while (stop.length > 0 && stop.text[stop.length] != byte) {
      stop.length = stop.fallback[stop.length];
    }
    if (stop.text[stop.length] == byte) ++stop.length;
    pending_ = std::max<size_t>(pending_, stop.length);
    if (stop.length < stop.text.size()) continue;
    if (!found || stop.text.size() > matched_bytes()) matched_ = i;
    found = true;
    stop.length = stop.fallback[stop.length];
  }
  return found;
}

void StopMatcher::restart() {
  for (Stop& stop : stops_) stop.length = 0;
  pending_ = 0;
}

void StopFilter::push(std::string_view text, std::string& out) {
  if (stops_.empty()) {
    out += text;
    return;
  }
  for (const char byte : text) {
    held_.push_back(byte);
    if (stops_.push(byte)) {
      stopped_ = true;
      stop_index_ = stops_.matched();
      held_.resize(held_.size() - stops_.matched_bytes());
      out += held_;
      held_.clear();
      return;
    }
  }
  // A stop string starts at a character, so what is pending does too.
  const size_t certain = held_.size() - stops_.pending();
  out.append(held_, 0, certain);
  held_.erase(0, certain);
}

void StopFilter::flush(std::string& out) {
  out += held_;
  held_.clear();
  stops_.restart();
}

Result<TextAssembler> TextAssembler::create(const Tokenizer& tokenizer, DecodeOptions options,
                                            std::vector<std::string> stops) {
  SKEIN_ASSIGN(StopMatcher matcher, StopMatcher::create(std::move(stops)));
  return TextAssembler(tokenizer, options, StopFilter(std::move(matcher)));
}

Status TextAssembler::push(TokenId id, std::string& out) {
  if (!tokenizer_->contains(id)) {
    return out_of_range("token {} is not in the vocabulary of {}", id, tokenizer_->vocab_size());
  }
  if (stopped()) return {};
  ++tokens_;
  if (options_.skip_special && tokenizer_->is_control(id)) return {};
  std::string_view bytes = tokenizer_->bytes(id);
  if (strip_space_ && !bytes.empty()) {
    if (bytes[0] == ' ') bytes.remove_prefix(1);
    strip_space_ = false;
  }
  take(bytes, out);
  return {};
}

void TextAssembler::take(std::string_view bytes, std::string& out) {
  if (!partial_.empty()) {
    partial_ += bytes;
    bytes = partial_;
  }
  std::string text;
  while (!bytes.empty()) {
    const Utf8Char next = utf8_next(bytes);
    if (next.kind == Utf8Kind::kIncomplete) break;
    text += next.kind == Utf8Kind::kValid ? bytes.substr(0, next.length) : kReplacementUtf8;
    bytes.remove_prefix(next.length);
  }
  partial_ = std::string(bytes);
  stops_.push(text, out);
}

void TextAssembler::finish(std::string& out) {
  stops_.flush(out);
  partial_.clear();
}

}  // namespace skein
