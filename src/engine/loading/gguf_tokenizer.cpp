#include "engine/loading/gguf_tokenizer.h"

#include <algorithm>
#include <span>
#include <string>
#include <string_view>
#include <utility>

#include "text/bert_text.h"

namespace skein {
namespace {

// A pre-tokenizer by the name that tokenizer.ggml.pre gives it.
struct Preset {
  std::string_view name;
  std::span<const Splitter> splitters;
  bool ignore_merges = false;
  bool add_bos = false;
};

constexpr Splitter kDefault[] = {Splitter::kDefaultPunctuation, Splitter::kGpt2,
                                 Splitter::kNumberRun, Splitter::kAsciiTriple};
constexpr Splitter kGpt2[] = {Splitter::kGpt2};
constexpr Splitter kDigitsGpt2[] = {Splitter::kNumber, Splitter::kGpt2};
constexpr Splitter kLlama3[] = {Splitter::kLlama3};
constexpr Splitter kQwen2[] = {Splitter::kQwen2};
constexpr Splitter kQwen35[] = {Splitter::kQwen35};
constexpr Splitter kMiniCpm5[] = {Splitter::kNumberTriple, Splitter::kMiniCpm5};
constexpr Splitter kSeedCoder[] = {Splitter::kSeedCoder};
constexpr Splitter kTekken[] = {Splitter::kTekken};
constexpr Splitter kO200k[] = {Splitter::kO200k};
constexpr Splitter kBloom[] = {Splitter::kBloom};
constexpr Splitter kViking[] = {Splitter::kBloom, Splitter::kNumber};
constexpr Splitter kLaguna[] = {Splitter::kLines, Splitter::kQwen2};
constexpr Splitter kFalcon[] = {Splitter::kPunctuationRun, Splitter::kGpt2, Splitter::kAsciiTriple};
constexpr Splitter kDeepSeekLlm[] = {
    Splitter::kNewline,       Splitter::kDeepSeekLetters, Splitter::kDeepSeekPunctuation,
    Splitter::kTrailingSpace, Splitter::kDeepSeekCjk,     Splitter::kNumberRun};
constexpr Splitter kDeepSeekCoder[] = {Splitter::kNewline, Splitter::kSpacedLetters,
                                       Splitter::kSpacedPunctuation, Splitter::kDeepSeekCjk,
                                       Splitter::kNumber};
constexpr Splitter kDeepSeek3[] = {Splitter::kNumberTriple, Splitter::kDeepSeek3Cjk,
                                   Splitter::kDeepSeek3};

constexpr Preset kPresets[] = {
    {"default", kDefault},
    {"gpt-2", kGpt2},
    {"phi-2", kGpt2},
    {"mpt", kGpt2},
    {"olmo", kGpt2},
    {"jais", kGpt2},
    {"trillion", kGpt2},
    {"granite-docling", kGpt2},
    {"gigachat", kGpt2},
    {"a.x-4.0", kGpt2},
    {"mellum", kGpt2},
    {"exaone4", kGpt2},
    {"starcoder", kDigitsGpt2},
    {"refact", kDigitsGpt2},
    {"command-r", kDigitsGpt2},
    {"smollm", kDigitsGpt2},
    {"codeshell", kDigitsGpt2},
    {"exaone", kDigitsGpt2},
    {"minerva-7b", kDigitsGpt2},
    {"mellum2", kDigitsGpt2},
    {"llama3", kLlama3, true, true},
    {"llama-v3", kLlama3, true, true},
    {"llama-bpe", kLlama3, true, true},
    {"falcon3", kLlama3, true, true},
    {"falcon-h1", kLlama3, true, true},
    {"pixtral", kLlama3, true, true},
    {"midm-2.0", kLlama3, true, true},
    {"lfm2", kLlama3, true, true},
    {"dbrx", kLlama3},
    {"smaug-bpe", kLlama3},
    {"glm4", kLlama3},
    {"chatglm-bpe", kLlama3},
    {"qwen2", kQwen2},
    {"deepseek-r1-qwen", kQwen2},
    {"kormo", kQwen2},
    {"stablelm2", kQwen2},
    {"hunyuan", kQwen2},
    {"megrez", kQwen2},
    {"solar-open", kQwen2},
    {"bailingmoe", kQwen2},
    {"bailingmoe2", kQwen2},
    {"llada-moe", kQwen2},
    {"grok-2", kQwen2},
    {"qwen35", kQwen35},
    {"minicpm5", kMiniCpm5, true},
    {"seed-coder", kSeedCoder},
    {"tekken", kTekken, true, true},
    {"gpt-4o", kO200k},
    {"llama4", kO200k},
    {"kanana2", kO200k},
    {"minimax-m2", kO200k},
    {"bloom", kBloom},
    {"poro-chat", kBloom},
    {"gpt3-finnish", kBloom},
    {"viking", kViking},
    {"laguna", kLaguna},
    {"falcon", kFalcon},
    {"deepseek-llm", kDeepSeekLlm},
    {"deepseek-coder", kDeepSeekCoder},
    {"deepseek-v3", kDeepSeek3},
    {"hunyuan-dense", kDeepSeek3},
    {"joyai-llm", kDeepSeek3},
};

// Reads the keys of one file; `add_*` come with the defaults of the kind.
class Reader {
 public:
  explicit Reader(const gguf::Metadata& metadata) : metadata_(metadata) {}

  Result<GgufTokenizer> read() {
    SKEIN_ASSIGN(const std::string_view model,
                 metadata_.get<std::string_view>("tokenizer.ggml.model"));
    SKEIN_TRY(read_pieces());
    if (model == "gpt2") {
      SKEIN_TRY(read_bpe());
    } else if (model == "llama") {
      SKEIN_TRY(read_sentencepiece());
    } else if (model == "t5") {
      SKEIN_TRY(read_unigram());
    } else if (model == "bert") {
      SKEIN_TRY(read_word_pieces());
    } else {
      return unimplemented("tokenizer.ggml.model '{}' is not supported", model);
    }
    SKEIN_TRY(read_special());
    return std::move(out_);
  }

 private:
  Status read_pieces() {
    SKEIN_ASSIGN(const gguf::StringArray tokens,
                 metadata_.get<gguf::StringArray>("tokenizer.ggml.tokens"));
    size_t bytes = 0;
    for (const std::string_view token : tokens) bytes += token.size();
    if (bytes > kMaxVocabularyBytes) {
      return out_of_range("tokenizer.ggml.tokens has {} bytes, at most {} are supported", bytes,
                          kMaxVocabularyBytes);
    }
    spec().pieces.reserve(tokens.size(), bytes);
    for (const std::string_view token : tokens) spec().pieces.push_back(token);
    if (!metadata_.has("tokenizer.ggml.token_type")) return {};
    SKEIN_ASSIGN(const gguf::IntArray types,
                 metadata_.get<gguf::IntArray>("tokenizer.ggml.token_type"));
    SKEIN_TRY(check_count("tokenizer.ggml.token_type", types.size()));
    constexpr TokenType kTypes[] = {
        TokenType::kNormal,      TokenType::kNormal, TokenType::kUnknown, TokenType::kControl,
        TokenType::kUserDefined, TokenType::kUnused, TokenType::kByte};
    for (size_t i = 0; i < types.size(); ++i) {
      const int64_t type = types[i];
      if (type < 0 || type >= static_cast<int64_t>(std::size(kTypes))) {
        return data_loss("tokenizer.ggml.token_type: token {} has the type {}", i, type);
      }
      spec().types.push_back(kTypes[type]);
    }
    return {};
  }

  // Lists beside tokenizer.ggml.tokens are read by the tokens' ids.
  Status check_count(std::string_view key, size_t count) {
    if (count == spec().pieces.size()) return {};
    return data_loss("{} has {} entries, tokenizer.ggml.tokens has {}; they must be as many", key,
                     count, spec().pieces.size());
  }

  Status read_scores() {
    SKEIN_ASSIGN(const gguf::FloatArray scores,
                 metadata_.get<gguf::FloatArray>("tokenizer.ggml.scores"));
    SKEIN_TRY(check_count("tokenizer.ggml.scores", scores.size()));
    spec().scores = scores.to_vector<double>();
    spec().byte_fallback =
        std::find(spec().types.begin(), spec().types.end(), TokenType::kByte) != spec().types.end();
    spec().decoder = TokenizerSpec::Decoder::kMetaspace;
    return {};
  }

  Status read_bpe() {
    spec().model = TokenizerSpec::Model::kBpe;
    spec().byte_level = true;
    spec().decoder = TokenizerSpec::Decoder::kByteLevel;
    SKEIN_ASSIGN(const gguf::StringArray merges,
                 metadata_.get<gguf::StringArray>("tokenizer.ggml.merges"));
    size_t bytes = 0;
    for (const std::string_view merge : merges) bytes += merge.size();
    if (bytes > kMaxVocabularyBytes || merges.size() > kMaxMerges) {
      return out_of_range("tokenizer.ggml.merges has {} merges of {} bytes, too many",
                          merges.size(), bytes);
    }
    spec().merges.reserve(merges.size() * 2, bytes);
    for (size_t i = 0; i < merges.size(); ++i) {
      // A byte-level piece has no space, so the space is the border.
      const size_t space = merges[i].find(' ', 1);
      if (space == std::string_view::npos) {
        return data_loss("tokenizer.ggml.merges: merge {} ('{}') has no space", i, merges[i]);
      }
      spec().merges.push_back(merges[i].substr(0, space));
      spec().merges.push_back(merges[i].substr(space + 1));
    }
    SKEIN_ASSIGN(const std::string_view pre,
                 metadata_.get_or<std::string_view>("tokenizer.ggml.pre", "default"));
    const auto* preset = std::find_if(std::begin(kPresets), std::end(kPresets),
                                      [&](const Preset& p) { return p.name == pre; });
    if (preset == std::end(kPresets)) {
      return unimplemented("tokenizer.ggml.pre '{}' is not supported", pre);
    }
    for (const Splitter splitter : preset->splitters) {
      PreTokenizerStep step;
      step.splitter = splitter;
      spec().pre_tokenizer.push_back(std::move(step));
    }
    spec().ignore_merges = preset->ignore_merges;
    add_bos_ = preset->add_bos;
    return {};
  }

  Status read_sentencepiece() {
    spec().model = TokenizerSpec::Model::kSpmBpe;
    SKEIN_TRY(read_scores());
    SKEIN_ASSIGN(const bool prefix, metadata_.get_or("tokenizer.ggml.add_space_prefix", true));
    if (prefix) spec().normalizer.push_back({NormalizerStep::Kind::kPrepend, {}, " "});
    spec().normalizer.push_back({NormalizerStep::Kind::kReplace, " ", std::string(kMetaspace)});
    spec().strip_leading_space = prefix;
    out_.ids.bos = 1;
    out_.ids.eos = 2;
    spec().unknown = 0;
    add_bos_ = true;
    return {};
  }

  Status read_unigram() {
    spec().model = TokenizerSpec::Model::kUnigram;
    SKEIN_TRY(read_scores());
    if (metadata_.has("tokenizer.ggml.precompiled_charsmap")) {
      SKEIN_ASSIGN(const gguf::IntArray blob,
                   metadata_.get<gguf::IntArray>("tokenizer.ggml.precompiled_charsmap"));
      std::string bytes(blob.size(), '\0');
      for (size_t i = 0; i < blob.size(); ++i) bytes[i] = static_cast<char>(blob[i]);
      spec().normalizer.push_back({NormalizerStep::Kind::kCharsmap, {}, std::move(bytes)});
    }
    SKEIN_ASSIGN(const bool squeeze,
                 metadata_.get_or("tokenizer.ggml.remove_extra_whitespaces", false));
    if (squeeze) {
      spec().normalizer.push_back({NormalizerStep::Kind::kStripLeft, {}, {}});
      spec().normalizer.push_back({NormalizerStep::Kind::kStripRight, {}, {}});
      spec().normalizer.push_back({NormalizerStep::Kind::kCollapseSpaces, {}, " "});
    }
    SKEIN_ASSIGN(const bool prefix, metadata_.get_or("tokenizer.ggml.add_space_prefix", true));
    if (prefix) spec().normalizer.push_back({NormalizerStep::Kind::kPrepend, {}, " "});
    spec().normalizer.push_back({NormalizerStep::Kind::kReplace, " ", std::string(kMetaspace)});
    spec().strip_leading_space = prefix;
    out_.ids.eos = 1;
    spec().unknown = 2;
    add_eos_ = true;
    return {};
  }

  // Pieces that begin a word have U+2581 before them, the others are as they are. BERT's own ids
  // count where the file names none.
  Status read_word_pieces() {
    spec().model = TokenizerSpec::Model::kWordPiece;
    spec().word_prefix = kMetaspace;
    bert::NormalizerOptions options;
    SKEIN_ASSIGN(options.lowercase, metadata_.get_or("tokenizer.ggml.normalizer.lowercase", true));
    SKEIN_ASSIGN(options.accents,
                 metadata_.get_or("tokenizer.ggml.normalizer.strip_accents", options.lowercase));
    bert::add_normalizer(options, spec());
    bert::add_pre_tokenizer(spec());
    spec().decoder = TokenizerSpec::Decoder::kWordPiece;
    spec().strip_leading_space = true;
    spec().joins_punctuation = true;
    spec().unknown = 100;
    out_.ids.bos = 101;
    out_.ids.eos = 102;
    TokenId padding = 0, mask = 103;
    SKEIN_TRY(read_id("cls_token_id", out_.ids.bos));
    SKEIN_TRY(read_id("seperator_token_id", out_.ids.eos));  // as files spell it
    SKEIN_TRY(read_id("padding_token_id", padding));
    SKEIN_TRY(read_id("mask_token_id", mask));
    spec().types.resize(spec().pieces.size(), TokenType::kNormal);
    for (const TokenId id : {out_.ids.bos, out_.ids.eos, padding, mask}) {
      if (id != kNoToken) spec().types[static_cast<size_t>(id)] = TokenType::kControl;
    }
    add_bos_ = add_eos_ = true;
    return {};
  }

  // Ids that are -1, or beyond the vocabulary where the key is only a kind's default, are none.
  Status read_id(std::string_view key, TokenId& id) {
    const auto count = static_cast<int64_t>(spec().pieces.size());
    const std::string full = std::string("tokenizer.ggml.") + std::string(key);
    if (!metadata_.has(full)) {
      if (id >= count) id = kNoToken;
      return {};
    }
    SKEIN_ASSIGN(const int64_t value, metadata_.get<int64_t>(full));
    if (value >= count && value != int64_t{UINT32_MAX}) {
      return data_loss("{} is {}, the vocabulary has {} tokens", full, value, count);
    }
    id = value < 0 || value >= count ? kNoToken : static_cast<TokenId>(value);
    return {};
  }

  Status read_special() {
    SKEIN_TRY(read_id("bos_token_id", out_.ids.bos));
    SKEIN_TRY(read_id("eos_token_id", out_.ids.eos));
    SKEIN_TRY(read_id("eot_token_id", out_.ids.eot));
    SKEIN_TRY(read_id("eom_token_id", out_.ids.eom));
    SKEIN_TRY(read_id("unknown_token_id", spec().unknown));
    SKEIN_ASSIGN(add_bos_, metadata_.get_or("tokenizer.ggml.add_bos_token", add_bos_));
    SKEIN_ASSIGN(add_eos_, metadata_.get_or("tokenizer.ggml.add_eos_token", add_eos_));
    if (add_bos_ && out_.ids.bos != kNoToken) spec().prefix.push_back(out_.ids.bos);
    if (add_eos_ && out_.ids.eos != kNoToken) spec().suffix.push_back(out_.ids.eos);
    return {};
  }

  TokenizerSpec& spec() { return out_.spec; }

  const gguf::Metadata& metadata_;
  GgufTokenizer out_;
  bool add_bos_ = false;
  bool add_eos_ = false;
};

}  // namespace

Result<GgufTokenizer> read_gguf_tokenizer(const gguf::Metadata& metadata) {
  return Reader(metadata).read();
}

}  // namespace skein
