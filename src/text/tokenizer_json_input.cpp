// Normalizers and pre-tokenizers of tokenizer.json.
#include <optional>
#include <utility>

#include "text/bert_text.h"
#include "text/splitter.h"
#include "text/tokenizer_json_parts.h"

namespace skein::tokenizer_json {
namespace {

using Step = PreTokenizerStep;

std::optional<std::string> from_base64(std::string_view text) {
  static constexpr std::string_view kDigits =
      "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
  std::string out;
  uint32_t bits = 0;
  int count = 0;
  while (!text.empty() && text.back() == '=') text.remove_suffix(1);
  for (const char c : text) {
    const size_t value = kDigits.find(c);
    if (value == std::string_view::npos) return std::nullopt;
    bits = (bits << 6) | static_cast<uint32_t>(value);
    count += 6;
    if (count >= 8) {
      count -= 8;
      out.push_back(static_cast<char>((bits >> count) & 0xFF));
    }
  }
  return out;
}

Status read_replace(const Json& part, TokenizerSpec& spec) {
  NormalizerStep step = {NormalizerStep::Kind::kReplace, {}, {}};
  SKEIN_ASSIGN(Pattern pattern, pattern_of(part));
  SKEIN_TRY(read(part, "content", step.content));
  if (pattern.is_regex && pattern.text == " {2,}") {
    step.kind = NormalizerStep::Kind::kCollapseSpaces;
  } else if (pattern.is_regex &&
             pattern.text.find_first_of("\\^$.|?*+()[]{}") != std::string::npos) {
    return unimplemented(
        "tokenizer.json: the normalizer replaces the regex '{}', which is not known", pattern.text);
  }
  step.pattern = std::move(pattern.text);
  spec.normalizer.push_back(std::move(step));
  return {};
}

Status read_precompiled(const Json& part, TokenizerSpec& spec) {
  std::string encoded;
  SKEIN_TRY(read(part, "precompiled_charsmap", encoded));
  if (encoded.empty()) return {};
  std::optional<std::string> blob = from_base64(encoded);
  if (!blob) return data_loss("tokenizer.json: precompiled_charsmap is not base64");
  spec.normalizer.push_back({NormalizerStep::Kind::kCharsmap, {}, std::move(*blob)});
  return {};
}

// Accents go where lower case is asked for and nothing is said about them.
Status read_bert_normalizer(const Json& part, TokenizerSpec& spec) {
  bert::NormalizerOptions options;
  SKEIN_TRY(read(part, "clean_text", options.clean));
  SKEIN_TRY(read(part, "handle_chinese_chars", options.chinese));
  SKEIN_TRY(read(part, "lowercase", options.lowercase));
  options.accents = options.lowercase;
  SKEIN_TRY(read(part, "strip_accents", options.accents));
  bert::add_normalizer(options, spec);
  return {};
}

Result<Step::Behavior> behavior_of(const Json& part) {
  std::string name = "Isolated";
  SKEIN_TRY(read(part, "behavior", name));
  if (name == "Isolated") return Step::Behavior::kIsolated;
  if (name == "Removed") return Step::Behavior::kRemoved;
  if (name == "MergedWithPrevious") return Step::Behavior::kMergedWithPrevious;
  if (name == "MergedWithNext") return Step::Behavior::kMergedWithNext;
  if (name == "Contiguous") return Step::Behavior::kContiguous;
  return data_loss("tokenizer.json: the behavior '{}' of a Split is not known", name);
}

Status read_split(const Json& part, TokenizerSpec& spec) {
  Step step;
  SKEIN_ASSIGN(step.behavior, behavior_of(part));
  SKEIN_TRY(read(part, "invert", step.invert));
  SKEIN_ASSIGN(Pattern pattern, pattern_of(part));
  if (!pattern.is_regex) {
    step.pattern = std::move(pattern.text);
  } else if (const auto splitter = splitter_for_regex(pattern.text)) {
    step.splitter = *splitter;
  } else {
    return unimplemented(
        "tokenizer.json: the pre-tokenizer splits by the regex '{}', which is not among those "
        "known",
        pattern.text);
  }
  spec.pre_tokenizer.push_back(std::move(step));
  return {};
}

Status read_byte_level(const Json& part, TokenizerSpec& spec) {
  bool add_prefix_space = true;
  bool use_regex = true;
  SKEIN_TRY(read(part, "add_prefix_space", add_prefix_space));
  SKEIN_TRY(read(part, "use_regex", use_regex));
  if (add_prefix_space) spec.pre_tokenizer.push_back({.kind = Step::Kind::kPrefixSpace});
  if (use_regex) spec.pre_tokenizer.push_back({.splitter = Splitter::kGpt2});
  spec.byte_level = true;
  return {};
}

Status read_metaspace(const Json& part, TokenizerSpec& spec) {
  SKEIN_TRY(check_replacement(part));
  SKEIN_ASSIGN(const Step::Prepend prepend, prepend_of(part));
  spec.pre_tokenizer.push_back({.kind = Step::Kind::kMetaspace, .prepend = prepend});
  bool split = true;
  SKEIN_TRY(read(part, "split", split));
  if (split) {
    spec.pre_tokenizer.push_back(
        {.pattern = std::string(kMetaspace), .behavior = Step::Behavior::kMergedWithNext});
  }
  return {};
}

Status read_digits(const Json& part, TokenizerSpec& spec) {
  bool individual = false;
  SKEIN_TRY(read(part, "individual_digits", individual));
  // A step behind ByteLevel sees its characters instead of the text's.
  const Splitter one = spec.byte_level ? Splitter::kMappedNumber : Splitter::kNumber;
  const Splitter run = spec.byte_level ? Splitter::kMappedNumberRun : Splitter::kNumberRun;
  spec.pre_tokenizer.push_back({.splitter = individual ? one : run});
  return {};
}

Status read_punctuation(const Json& part, TokenizerSpec& spec) {
  SKEIN_ASSIGN(const Step::Behavior behavior, behavior_of(part));
  spec.pre_tokenizer.push_back({.splitter = Splitter::kPunctuation, .behavior = behavior});
  return {};
}

Status read_char_delimiter(const Json& part, TokenizerSpec& spec) {
  Step step;
  step.behavior = Step::Behavior::kRemoved;
  SKEIN_TRY(read(part, "delimiter", step.pattern));
  if (step.pattern.empty())
    return data_loss("tokenizer.json: a CharDelimiterSplit has no delimiter");
  spec.pre_tokenizer.push_back(std::move(step));
  return {};
}

}  // namespace

Status read_normalizer(const Json* part, TokenizerSpec& spec) {
  using Kind = NormalizerStep::Kind;
  if (part == nullptr) return {};
  SKEIN_ASSIGN(const std::string type, type_of(*part, "normalizer"));
  const auto add = [&](Kind kind) {
    spec.normalizer.push_back({kind, {}, {}});
    return ok_status();
  };
  if (type == "Sequence") return read_each(*part, "normalizers", spec, read_normalizer);
  if (type == "Prepend") {
    std::string content;
    SKEIN_TRY(read(*part, "prepend", content));
    spec.normalizer.push_back({Kind::kPrepend, {}, std::move(content)});
    return {};
  }
  if (type == "Replace") return read_replace(*part, spec);
  if (type == "Precompiled") return read_precompiled(*part, spec);
  if (type == "NFC") return add(Kind::kNfc);
  if (type == "NFD") return add(Kind::kNfd);
  if (type == "NFKC") return add(Kind::kNfkc);
  if (type == "NFKD") return add(Kind::kNfkd);
  if (type == "Lowercase") return add(Kind::kLowercase);
  if (type == "BertNormalizer") return read_bert_normalizer(*part, spec);
  if (type == "Strip") {
    bool left = true;
    bool right = true;
    SKEIN_TRY(read(*part, "strip_left", left));
    SKEIN_TRY(read(*part, "strip_right", right));
    if (left) SKEIN_TRY(add(Kind::kStripLeft));
    if (right) SKEIN_TRY(add(Kind::kStripRight));
    return {};
  }
  return unimplemented("tokenizer.json: the normalizer '{}' is not supported", type);
}

Status read_pre_tokenizer(const Json* part, TokenizerSpec& spec) {
  if (part == nullptr) return {};
  SKEIN_ASSIGN(const std::string type, type_of(*part, "pre-tokenizer"));
  if (type == "Sequence") return read_each(*part, "pretokenizers", spec, read_pre_tokenizer);
  if (type == "Digits") return read_digits(*part, spec);
  if (type == "Split") {
    SKEIN_TRY(read_split(*part, spec));
    // After ByteLevel only ASCII is still itself.
    const Step& step = spec.pre_tokenizer.back();
    if (!spec.byte_level || step.splitter == Splitter::kAsciiTriple) return {};
  }
  if (spec.byte_level) return unimplemented("tokenizer.json: a {} after ByteLevel", type);
  if (type == "ByteLevel") return read_byte_level(*part, spec);
  if (type == "Metaspace") return read_metaspace(*part, spec);
  if (type == "Punctuation") return read_punctuation(*part, spec);
  if (type == "CharDelimiterSplit") return read_char_delimiter(*part, spec);
  if (type == "Whitespace") {
    spec.pre_tokenizer.push_back(
        {.splitter = Splitter::kWords, .behavior = Step::Behavior::kRemoved, .invert = true});
    return {};
  }
  if (type == "WhitespaceSplit") {
    spec.pre_tokenizer.push_back(
        {.splitter = Splitter::kSpace, .behavior = Step::Behavior::kRemoved});
    return {};
  }
  if (type == "BertPreTokenizer") {
    bert::add_pre_tokenizer(spec);
    return {};
  }
  return unimplemented("tokenizer.json: the pre-tokenizer '{}' is not supported", type);
}

}  // namespace skein::tokenizer_json
