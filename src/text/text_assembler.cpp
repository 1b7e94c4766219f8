#include "text/text_assembler.h"

#include <utility>

#include "text/utf8.h"

namespace skein {

Result<TextAssembler> TextAssembler::create(const Tokenizer& tokenizer, DecodeOptions options,
                                            std::vector<std::string> stops) {
  SKEIN_ASSIGN(StopMatcher matcher, StopMatcher::create(std::move(stops)));
  return TextAssembler(tokenizer, options, std::move(matcher));
}

Status TextAssembler::push(TokenId id, std::string& out) {
  if (!tokenizer_->contains(id)) {
    return out_of_range("token {} is not in the vocabulary of {}", id, tokenizer_->vocab_size());
  }
  if (stopped_) return {};
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
  take_text(text, out);
}

void TextAssembler::take_text(std::string_view text, std::string& out) {
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

void TextAssembler::finish(std::string& out) {
  out += held_;
  held_.clear();
  partial_.clear();
}

}  // namespace skein
