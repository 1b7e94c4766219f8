#include "text/tokenizer.h"

#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "text/added_tokens.h"
#include "text/bpe.h"
#include "text/normalizer.h"
#include "text/pre_tokenizer.h"
#include "text/text_assembler.h"
#include "text/unigram.h"
#include "text/vocabulary.h"

namespace skein {

// Behind a pointer, because the models refer to the vocabulary.
struct Tokenizer::Parts {
  Vocabulary vocabulary;
  std::optional<Bpe> bpe;
  std::optional<Unigram> unigram;
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
