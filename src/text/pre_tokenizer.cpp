#include "text/pre_tokenizer.h"

#include <string>

namespace skein {
namespace {

using Step = PreTokenizerStep;

constexpr size_t kMaxSplitSteps = 16;

// Turns matches and the text between them into the pieces that the step's behavior asks for. The
// stretches come in order and touch, so a piece under way is one view that grows.
class Joiner {
 public:
  Joiner(const Step& step, std::string_view text, bool is_first, std::span<const Step> rest,
         WordSink take)
      : step_(step), text_(text), is_first_(is_first), rest_(rest), take_(take) {}

  void add(std::string_view piece, bool is_match) {
    if (piece.empty()) return;
    is_match = is_match != step_.invert;
    switch (step_.behavior) {
      case Step::Behavior::kIsolated:
        emit(piece);
        break;
      case Step::Behavior::kRemoved:
        if (!is_match) emit(piece);
        break;
      case Step::Behavior::kMergedWithPrevious:  // a match ends the piece under way
        grow(piece);
        if (is_match) flush();
        break;
      case Step::Behavior::kMergedWithNext:  // a match begins a piece
        if (is_match) flush();
        grow(piece);
        break;
      case Step::Behavior::kContiguous:
        if (is_match != last_is_match_) flush();
        grow(piece);
        last_is_match_ = is_match;
        break;
    }
  }

  void flush() {
    if (!current_.empty()) emit(current_);
    current_ = {};
  }

 private:
  void grow(std::string_view piece) {
    current_ = current_.empty() ? piece
                                : std::string_view(current_.data(), current_.size() + piece.size());
  }
  void emit(std::string_view piece) {
    pre_tokenize(rest_, piece, is_first_ && piece.data() == text_.data(), take_);
  }

  const Step& step_;
  std::string_view text_;
  bool is_first_;
  std::span<const Step> rest_;
  WordSink take_;
  std::string_view current_;
  bool last_is_match_ = false;
};

void split_at_string(std::string_view pattern, std::string_view text, Joiner& joiner) {
  for (size_t from = 0; from < text.size();) {
    const size_t at = text.find(pattern, from);
    if (at == std::string_view::npos) return joiner.add(text.substr(from), false);
    joiner.add(text.substr(from, at - from), false);
    joiner.add(text.substr(at, pattern.size()), true);
    from = at + pattern.size();
  }
}

std::string with_metaspaces(std::string_view text, bool prepend) {
  std::string out;
  out.reserve(text.size() * 2);
  if (prepend && text[0] != ' ' && text.substr(0, kMetaspace.size()) != kMetaspace)
    out = kMetaspace;
  for (const char c : text) {
    if (c == ' ') {
      out += kMetaspace;
    } else {
      out += c;
    }
  }
  return out;
}

}  // namespace

Status check_pre_tokenizer(std::span<const PreTokenizerStep> steps) {
  if (steps.size() <= kMaxSplitSteps) return {};
  return out_of_range("tokenizer: {} pre-tokenizer steps, at most {} are supported", steps.size(),
                      kMaxSplitSteps);
}

void pre_tokenize(std::span<const PreTokenizerStep> steps, std::string_view text, bool is_first,
                  WordSink take) {
  if (text.empty()) return;
  if (steps.empty()) return take(text);
  const Step& step = steps[0];
  switch (step.kind) {
    case Step::Kind::kSplit: {
      Joiner joiner(step, text, is_first, steps.subspan(1), take);
      if (step.pattern.empty()) {
        split(step.splitter, text,
              [&joiner](std::string_view piece, bool is_match) { joiner.add(piece, is_match); });
      } else {
        split_at_string(step.pattern, text, joiner);
      }
      return joiner.flush();
    }
    case Step::Kind::kPrefixSpace: {
      if (text[0] == ' ') return pre_tokenize(steps.subspan(1), text, is_first, take);
      std::string spaced(1, ' ');
      spaced += text;
      return pre_tokenize(steps.subspan(1), spaced, is_first, take);
    }
    case Step::Kind::kMetaspace: {
      const bool prepend = step.prepend == Step::Prepend::kAlways ||
                           (step.prepend == Step::Prepend::kFirst && is_first);
      return pre_tokenize(steps.subspan(1), with_metaspaces(text, prepend), is_first, take);
    }
  }
}

}  // namespace skein
