#include "text/tokenizer.h"

#include <optional>
#include <utility>

#include "base/function_ref.h"
#include "text/added_tokens.h"
#include "text/bpe.h"
#include "text/normalizer.h"
#include "text/text_assembler.h"
#include "text/unigram.h"
#include "text/vocabulary.h"
#include "text/word_piece.h"

namespace skein {
namespace {

using Step = PreTokenizerStep;
using WordSink = FunctionRef<void(std::string_view word)>;

constexpr size_t kMaxSplitSteps = 16;  // they nest

// Runs the steps of a pre-tokenizer over a stretch of text and hands the words on, which are never
// empty. `is_first`: the stretch begins where the whole text begins.
void pre_tokenize(std::span<const Step> steps, std::string_view text, bool is_first, WordSink take);

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

Status check_pre_tokenizer(std::span<const Step> steps) {
  if (steps.size() <= kMaxSplitSteps) return {};
  return out_of_range("tokenizer: {} pre-tokenizer steps, at most {} are supported", steps.size(),
                      kMaxSplitSteps);
}

void pre_tokenize(std::span<const Step> steps, std::string_view text, bool is_first,
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

}  // namespace

// Behind a pointer, because the models refer to the vocabulary.
struct Tokenizer::Parts {
  Vocabulary vocabulary;
  std::optional<Bpe> bpe;
  std::optional<Unigram> unigram;
  std::optional<WordPiece> word_piece;
  Normalizer normalizer;
  std::vector<PreTokenizerStep> pre_tokenizer;
  // Those looked for before and after the normalizer; [1] with the special ones.
  AddedTokens raw_added[2];
  AddedTokens normalized_added[2];
  std::vector<TokenId> prefix;
  std::vector<TokenId> suffix;
  bool strip_leading_space = false;
  size_t longest_piece_bytes = 1;

  Status add_tokens(const std::vector<AddedToken>& added);
};

namespace {

struct Scratch {
  Bpe::Scratch bpe;
  Unigram::Scratch unigram;
};

// Calls token(id) and plain(text, is_start_of_the_whole) for the parts of `text` in order.
template <class Plain, class Token>
Status each_part(const AddedTokens& added, std::string_view text, const TrustedRanges& trusted,
                 const Plain& plain, const Token& token) {
  size_t from = 0;
  while (!added.empty() && from < text.size()) {
    const AddedTokens::Match match = added.next(text, from, trusted);
    if (match.id == kNoToken) break;
    if (match.begin > from) SKEIN_TRY(plain(text.substr(from, match.begin - from), from == 0));
    token(match.id);
    from = match.end;
  }
  if (from < text.size()) SKEIN_TRY(plain(text.substr(from), from == 0));
  return {};
}

// Where the trusted parts of `section` are once it is normalized (`changed`). The normalizer may
// draw neighbours together over a border; then nothing is trusted. So what counts as trusted is
// exactly what the trusted text gives by itself.
Result<TrustedRanges> normalized_ranges(const Normalizer& normalizer, std::string_view section,
                                        const TrustedRanges& trusted, std::string_view changed) {
  TrustedRanges moved;
  if (trusted.empty()) return moved;
  if (trusted.covers(0, section.size())) {
    moved.add(0, changed.size());
    return moved;
  }
  std::string runs;
  std::vector<std::pair<size_t, size_t>> places;
  const auto take = [&](size_t begin, size_t end, bool is_trusted) -> Status {
    const size_t at = runs.size();
    SKEIN_ASSIGN(const std::string run,
                 normalizer.apply_inside(section.substr(begin, end - begin)));
    runs += run;
    if (is_trusted) places.emplace_back(at, runs.size());
    return {};
  };
  size_t from = 0;
  for (const TrustedRanges::Range& range : trusted.ranges()) {
    if (range.begin > from) SKEIN_TRY(take(from, range.begin, false));
    SKEIN_TRY(take(range.begin, range.end, true));
    from = range.end;
  }
  if (from < section.size()) SKEIN_TRY(take(from, section.size(), false));
  if (changed.size() < runs.size()) return moved;
  const size_t lead = changed.size() - runs.size();  // what the normalizer put before the text
  if (changed.substr(lead) != runs) return moved;
  for (const auto& [begin, end] : places) moved.add(begin + lead, end + lead);
  return moved;
}

}  // namespace

Status Tokenizer::Parts::add_tokens(const std::vector<AddedToken>& added) {
  for (const bool with_special : {false, true}) {
    std::vector<AddedToken> raw;
    std::vector<AddedToken> normalized;
    for (AddedToken token : added) {
      const TokenType type = vocabulary.type(token.id);
      token.special |= type == TokenType::kControl || type == TokenType::kMarker;
      if (token.special && !with_special) continue;
      if (token.normalized) {
        SKEIN_ASSIGN(token.text, normalizer.apply(token.text));
        normalized.push_back(std::move(token));
      } else {
        raw.push_back(std::move(token));
      }
    }
    SKEIN_ASSIGN(raw_added[with_special], AddedTokens::create(std::move(raw)));
    SKEIN_ASSIGN(normalized_added[with_special], AddedTokens::create(std::move(normalized)));
  }
  return {};
}

Tokenizer::Tokenizer(std::unique_ptr<Parts> parts) : parts_(std::move(parts)) {}
Tokenizer::Tokenizer(Tokenizer&&) noexcept = default;
Tokenizer& Tokenizer::operator=(Tokenizer&&) noexcept = default;
Tokenizer::~Tokenizer() = default;

Result<Tokenizer> Tokenizer::create(TokenizerSpec spec) {
  auto parts = std::make_unique<Parts>();
  SKEIN_ASSIGN(parts->vocabulary, Vocabulary::create(spec));
  if (spec.model == TokenizerSpec::Model::kUnigram) {
    SKEIN_ASSIGN(Unigram model, Unigram::create(spec, parts->vocabulary));
    parts->unigram.emplace(std::move(model));
  } else if (spec.model == TokenizerSpec::Model::kWordPiece) {
    SKEIN_ASSIGN(WordPiece model, WordPiece::create(spec, parts->vocabulary));
    parts->word_piece.emplace(std::move(model));
  } else {
    SKEIN_ASSIGN(Bpe model, Bpe::create(spec, parts->vocabulary));
    parts->bpe.emplace(std::move(model));
  }
  SKEIN_ASSIGN(parts->normalizer, Normalizer::create(std::move(spec.normalizer)));
  SKEIN_TRY(check_pre_tokenizer(spec.pre_tokenizer));
  parts->pre_tokenizer = std::move(spec.pre_tokenizer);
  SKEIN_TRY(parts->add_tokens(spec.added));
  parts->prefix = std::move(spec.prefix);
  parts->suffix = std::move(spec.suffix);
  parts->strip_leading_space = spec.strip_leading_space;
  for (size_t id = 0; id < parts->vocabulary.size(); ++id) {
    const std::string_view piece = parts->vocabulary.decoded(static_cast<TokenId>(id));
    parts->longest_piece_bytes = std::max(parts->longest_piece_bytes, piece.size());
  }
  // A word without pieces is one token, however long it is, and white space is none.
  if (parts->word_piece) parts->longest_piece_bytes = kMaxTextBytes;
  return Tokenizer(std::move(parts));
}

Result<std::vector<TokenId>> Tokenizer::encode(std::string_view text, EncodeOptions options) const {
  TrustedRanges trusted;
  if (options.parse_special) trusted.add(0, text.size());
  return encode(text, trusted, options.add_special);
}

Result<std::vector<TokenId>> Tokenizer::encode(std::span<const TextPart> parts,
                                               bool add_special) const {
  TrustedRanges trusted;
  std::string text;
  for (const TextPart& part : parts) {
    if (part.trusted) trusted.add(text.size(), text.size() + part.text.size());
    text += part.text;
  }
  return encode(text, trusted, add_special);
}

Result<PairTokens> Tokenizer::encode_pair(std::string_view first, std::string_view second) const {
  PairTokens pair;
  SKEIN_ASSIGN(pair.ids, encode(first, {.add_special = true}));
  SKEIN_ASSIGN(const std::vector<TokenId> ids, encode(second));
  pair.second_from = static_cast<uint32_t>(pair.ids.size());
  pair.ids.insert(pair.ids.end(), ids.begin(), ids.end());
  pair.ids.insert(pair.ids.end(), parts_->suffix.begin(), parts_->suffix.end());
  return pair;
}

Result<std::vector<TokenId>> Tokenizer::encode(std::string_view text, const TrustedRanges& trusted,
                                               bool add_special) const {
  if (text.size() > kMaxTextBytes) {
    return out_of_range("tokenizer: a text of {} bytes, at most {} are taken", text.size(),
                        kMaxTextBytes);
  }
  std::vector<TokenId> ids;
  ids.reserve(text.size() / 4 + 4);
  Scratch scratch;
  const auto word = [&](std::string_view piece) {
    if (parts_->bpe) {
      parts_->bpe->encode(piece, scratch.bpe, ids);
    } else if (parts_->word_piece) {
      parts_->word_piece->encode(piece, ids);
    } else {
      parts_->unigram->encode(piece, scratch.unigram, ids);
    }
  };
  const auto token = [&](TokenId id) { ids.push_back(id); };
  const auto words = [&](std::string_view section, bool is_first) {
    pre_tokenize(parts_->pre_tokenizer, section, is_first, word);
    return ok_status();
  };
  if (add_special) ids = parts_->prefix;
  const auto part = [&](std::string_view section, bool is_first, const TrustedRanges& ranges) {
    return each_part(
        parts_->normalized_added[!ranges.empty()], section, ranges,
        [&](std::string_view inner, bool first) { return words(inner, is_first && first); }, token);
  };
  SKEIN_TRY(each_part(
      parts_->raw_added[!trusted.empty()], text, trusted,
      [&](std::string_view section, bool is_first) -> Status {
        const auto begin = static_cast<size_t>(section.data() - text.data());
        const TrustedRanges within = trusted.within(begin, begin + section.size());
        if (parts_->normalizer.empty()) return part(section, is_first, within);
        SKEIN_ASSIGN(const std::string changed, parts_->normalizer.apply(section));
        if (parts_->normalized_added[1].empty()) return part(changed, is_first, {});
        SKEIN_ASSIGN(const TrustedRanges moved,
                     normalized_ranges(parts_->normalizer, section, within, changed));
        return part(changed, is_first, moved);
      },
      token));
  if (add_special) ids.insert(ids.end(), parts_->suffix.begin(), parts_->suffix.end());
  return ids;
}

Result<std::string> Tokenizer::decode(std::span<const TokenId> ids, DecodeOptions options) const {
  SKEIN_ASSIGN(TextAssembler assembler, TextAssembler::create(*this, options, {}));
  std::string out;
  for (const TokenId id : ids) SKEIN_TRY(assembler.push(id, out));
  assembler.finish(out);
  return out;
}

size_t Tokenizer::longest_piece_bytes() const {
  return parts_->longest_piece_bytes;
}

size_t Tokenizer::vocab_size() const {
  return parts_->vocabulary.size();
}
bool Tokenizer::contains(TokenId id) const {
  return parts_->vocabulary.contains(id);
}
TokenId Tokenizer::find(std::string_view piece) const {
  return parts_->vocabulary.find(piece);
}
std::string_view Tokenizer::piece(TokenId id) const {
  return parts_->vocabulary.spelled(id);
}
std::string_view Tokenizer::bytes(TokenId id) const {
  return parts_->vocabulary.decoded(id);
}
bool Tokenizer::is_control(TokenId id) const {
  const TokenType type = parts_->vocabulary.type(id);
  return type == TokenType::kControl || type == TokenType::kUnknown;
}
bool Tokenizer::strips_leading_space() const {
  return parts_->strip_leading_space;
}

}  // namespace skein
