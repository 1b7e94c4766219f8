// How tokenizer.json prepares text: its normalizer and its pre-tokenizer.
#include <optional>
#include <utility>

#include "text/tokenizer_json_parts.h"

namespace skein::tokenizer_json {
namespace {

std::optional<std::string> from_base64(std::string_view text) {
  std::string out;
  uint32_t bits = 0;
  int count = 0;
  while (!text.empty() && text.back() == '=') text.remove_suffix(1);
  for (const char c : text) {
    uint32_t value = 0;
    if (c >= 'A' && c <= 'Z') {
      value = static_cast<uint32_t>(c - 'A');
    } else if (c >= 'a' && c <= 'z') {
      value = static_cast<uint32_t>(c - 'a') + 26;
    } else if (c >= '0' && c <= '9') {
      value = static_cast<uint32_t>(c - '0') + 52;
    } else if (c == '+' || c == '/') {
      value = c == '+' ? 62 : 63;
    } else {
      return std::nullopt;
    }
    bits = (bits << 6) | value;
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

Result<PreTokenizerStep::Behavior> behavior_of(const Json& part) {
  using Behavior = PreTokenizerStep::Behavior;
  std::string name = "Isolated";
  SKEIN_TRY(read(part, "behavior", name));
  if (name == "Isolated") return Behavior::kIsolated;
  if (name == "Removed") return Behavior::kRemoved;
  if (name == "MergedWithPrevious") return Behavior::kMergedWithPrevious;
  if (name == "MergedWithNext") return Behavior::kMergedWithNext;
  if (name == "Contiguous") return Behavior::kContiguous;
  return data_loss("tokenizer.json: the behavior '{}' of a Split is not known", name);
}

PreTokenizerStep split_by(Splitter splitter, PreTokenizerStep::Behavior behavior =
                                                 PreTokenizerStep::Behavior::kIsolated) {
  PreTokenizerStep step;
  step.splitter = splitter;
  step.behavior = behavior;
  return step;
}

Status read_split(const Json& part, TokenizerSpec& spec) {
  PreTokenizerStep step;
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
  if (add_prefix_space) {
    PreTokenizerStep step;
    step.kind = PreTokenizerStep::Kind::kPrefixSpace;
    spec.pre_tokenizer.push_back(step);
  }
  if (use_regex) spec.pre_tokenizer.push_back(split_by(Splitter::kGpt2));
  spec.byte_level = true;
  return {};
}

Status read_metaspace(const Json& part, TokenizerSpec& spec) {
  SKEIN_TRY(check_replacement(part));
  PreTokenizerStep step;
  step.kind = PreTokenizerStep::Kind::kMetaspace;
  SKEIN_ASSIGN(step.prepend, prepend_of(part));
  spec.pre_tokenizer.push_back(std::move(step));
  bool split = true;
  SKEIN_TRY(read(part, "split", split));
  if (split) {
    PreTokenizerStep cut;
    cut.pattern = kMetaspace;
    cut.behavior = PreTokenizerStep::Behavior::kMergedWithNext;
    spec.pre_tokenizer.push_back(std::move(cut));
  }
  return {};
}

Status read_digits(const Json& part, TokenizerSpec& spec) {
  bool individual = false;
  SKEIN_TRY(read(part, "individual_digits", individual));
  // What follows ByteLevel sees its characters instead of the text's.
  const Splitter one = spec.byte_level ? Splitter::kMappedNumber : Splitter::kNumber;
  const Splitter run = spec.byte_level ? Splitter::kMappedNumberRun : Splitter::kNumberRun;
  spec.pre_tokenizer.push_back(split_by(individual ? one : run));
  return {};
}

Status read_punctuation(const Json& part, TokenizerSpec& spec) {
  SKEIN_ASSIGN(const PreTokenizerStep::Behavior behavior, behavior_of(part));
  spec.pre_tokenizer.push_back(split_by(Splitter::kPunctuation, behavior));
  return {};
}

Status read_char_delimiter(const Json& part, TokenizerSpec& spec) {
  PreTokenizerStep step;
  step.behavior = PreTokenizerStep::Behavior::kRemoved;
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
  if (type == "Sequence") {
    SKEIN_ASSIGN(const Json* list, list_of(*part, "normalizers"));
    for (const Json& item : *list) SKEIN_TRY(read_normalizer(&item, spec));
    return {};
  }
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
  if (type == "Sequence") {
    SKEIN_ASSIGN(const Json* list, list_of(*part, "pretokenizers"));
    for (const Json& item : *list) SKEIN_TRY(read_pre_tokenizer(&item, spec));
    return {};
  }
  if (type == "Digits") return read_digits(*part, spec);
  if (type == "Split") {
    SKEIN_TRY(read_split(*part, spec));
    // After ByteLevel only ASCII is still itself.
    const PreTokenizerStep& step = spec.pre_tokenizer.back();
    if (!spec.byte_level || step.splitter == Splitter::kAsciiTriple) return {};
  }
  if (spec.byte_level) return unimplemented("tokenizer.json: a {} after ByteLevel", type);
  if (type == "ByteLevel") return read_byte_level(*part, spec);
  if (type == "Metaspace") return read_metaspace(*part, spec);
  if (type == "Punctuation") return read_punctuation(*part, spec);
  if (type == "CharDelimiterSplit") return read_char_delimiter(*part, spec);
  if (type == "Whitespace") {
    PreTokenizerStep step = split_by(Splitter::kWords, PreTokenizerStep::Behavior::kRemoved);
    step.invert = true;
    spec.pre_tokenizer.push_back(std::move(step));
    return {};
  }
  if (type == "WhitespaceSplit") {
    spec.pre_tokenizer.push_back(split_by(Splitter::kSpace, PreTokenizerStep::Behavior::kRemoved));
    return {};
  }
  return unimplemented("tokenizer.json: the pre-tokenizer '{}' is not supported", type);
}

}  // namespace skein::tokenizer_json
