#include "text/tokenizer_json.h"

#include <exception>
#include <nlohmann/json.hpp>
#include <optional>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include "text/vocabulary.h"

namespace skein {

// The parts beside the model: how text is prepared, and put together again. Each appends to the
// spec; a null part is none.
namespace tokenizer_json {
namespace {

using Json = nlohmann::json;

// The member `key` of an object; nullptr when it is not there or null.
const Json* member(const Json& object, std::string_view key) {
  if (!object.is_object()) return nullptr;
  const auto found = object.find(key);
  return found == object.end() || found->is_null() ? nullptr : &*found;
}

// Reads an optional member; leaves `out` alone when there is none.
Status read(const Json& object, std::string_view key, bool& out) {
  const Json* value = member(object, key);
  if (value == nullptr) return {};
  if (!value->is_boolean()) {
    return data_loss("tokenizer.json: '{}' is a {}, not true or false", key, value->type_name());
  }
  out = value->get<bool>();
  return {};
}

Status read(const Json& object, std::string_view key, std::string& out) {
  const Json* value = member(object, key);
  if (value == nullptr) return {};
  if (!value->is_string()) {
    return data_loss("tokenizer.json: '{}' is a {}, not a string", key, value->type_name());
  }
  out = value->get_ref<const std::string&>();
  return {};
}

using Step = PreTokenizerStep;

struct Pattern {
  std::string text;
  bool is_regex = false;
};

// The type of a part; `what` it is, for the error.
Result<std::string> type_of(const Json& part, std::string_view what) {
  std::string type;
  SKEIN_TRY(read(part, "type", type));
  if (type.empty()) return data_loss("tokenizer.json: a {} has no type", what);
  return type;
}

// Reads all parts of a Sequence, whose list has a name that depends on what it is a sequence of.
Status read_each(const Json& part, std::string_view key, TokenizerSpec& spec,
                 Status (*read_part)(const Json*, TokenizerSpec&)) {
  const Json* list = member(part, key);
  if (list == nullptr || !list->is_array()) {
    return data_loss("tokenizer.json: a Sequence has no list '{}'", key);
  }
  for (const Json& item : *list) SKEIN_TRY(read_part(&item, spec));
  return {};
}

Result<Pattern> pattern_of(const Json& part) {
  const Json* pattern = member(part, "pattern");
  Pattern out;
  if (pattern != nullptr && pattern->is_object()) {
    SKEIN_TRY(read(*pattern, "String", out.text));
    if (!out.text.empty()) return out;
    SKEIN_TRY(read(*pattern, "Regex", out.text));
    out.is_regex = true;
    if (!out.text.empty()) return out;
  }
  return data_loss("tokenizer.json: a pattern is neither a String nor a Regex");
}

// Where a Metaspace adds its mark; "add_prefix_space" is the older spelling.
Result<Step::Prepend> prepend_of(const Json& part) {
  std::string scheme;
  bool add_prefix_space = true;
  SKEIN_TRY(read(part, "prepend_scheme", scheme));
  SKEIN_TRY(read(part, "add_prefix_space", add_prefix_space));
  if (scheme.empty()) scheme = add_prefix_space ? "always" : "never";
  if (scheme == "always") return Step::Prepend::kAlways;
  if (scheme == "first") return Step::Prepend::kFirst;
  if (scheme == "never") return Step::Prepend::kNever;
  return data_loss("tokenizer.json: the prepend_scheme '{}' of a Metaspace is not known", scheme);
}

// Only U+2581 is supported.
Status check_replacement(const Json& part) {
  std::string replacement(kMetaspace);
  SKEIN_TRY(read(part, "replacement", replacement));
  if (replacement == kMetaspace) return {};
  return unimplemented("tokenizer.json: a Metaspace with the replacement '{}'", replacement);
}

// --- normalizer and pre-tokenizer ---

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

// --- post-processor and decoder ---

Status add_template_token(const Json& part, std::string_view name, std::vector<TokenId>& out) {
  const Json* tokens = member(part, "special_tokens");
  const Json* token = tokens == nullptr ? nullptr : member(*tokens, name);
  const Json* ids = token == nullptr ? nullptr : member(*token, "ids");
  if (ids == nullptr || !ids->is_array()) {
    return data_loss("tokenizer.json: the template's token '{}' has no ids", name);
  }
  for (const Json& id : *ids) {
    if (!id.is_number_unsigned() || id.get<uint64_t>() >= kMaxVocabulary) {
      return data_loss("tokenizer.json: the template's token '{}' has an id that is no token",
                       name);
    }
    out.push_back(id.get<TokenId>());
  }
  return {};
}

Status read_template(const Json& part, TokenizerSpec& spec) {
  const Json* single = member(part, "single");
  if (single == nullptr || !single->is_array()) {
    return data_loss("tokenizer.json: a TemplateProcessing has no list 'single'");
  }
  bool after_text = false;
  for (const Json& item : *single) {
    if (member(item, "Sequence") != nullptr) {
      after_text = true;
    } else if (const Json* token = member(item, "SpecialToken")) {
      std::string name;
      SKEIN_TRY(read(*token, "id", name));
      SKEIN_TRY(add_template_token(part, name, after_text ? spec.suffix : spec.prefix));
    }
  }
  return {};
}

// RobertaProcessing and BertProcessing: [text, id] before and after.
Status read_pair_processing(const Json& part, TokenizerSpec& spec) {
  for (const auto& [key, out] : {std::pair{"cls", &spec.prefix}, std::pair{"sep", &spec.suffix}}) {
    const Json* pair = member(part, key);
    if (pair == nullptr || !pair->is_array() || pair->size() != 2 ||
        !(*pair)[1].is_number_unsigned() || (*pair)[1].get<uint64_t>() >= kMaxVocabulary) {
      return data_loss("tokenizer.json: the post-processor's '{}' is not a text and an id", key);
    }
    out->push_back((*pair)[1].get<TokenId>());
  }
  return {};
}

Status read_decoder_replace(const Json& part, TokenizerSpec& spec) {
  SKEIN_ASSIGN(const Pattern pattern, pattern_of(part));
  std::string content;
  SKEIN_TRY(read(part, "content", content));
  if (pattern.text != kMetaspace || content != " ") {
    return unimplemented("tokenizer.json: the decoder replaces '{}' by '{}'", pattern.text,
                         content);
  }
  spec.decoder = TokenizerSpec::Decoder::kMetaspace;
  return {};
}

Status read_decoder_strip(const Json& part, TokenizerSpec& spec) {
  std::string content;
  SKEIN_TRY(read(part, "content", content));
  const Json* start = member(part, "start");
  const Json* stop = member(part, "stop");
  const bool starts = start != nullptr && *start == 1;
  const bool stops = stop != nullptr && *stop != 0;
  if (content != " " || stops) {
    return unimplemented(
        "tokenizer.json: the decoder strips something else than one space at the start");
  }
  spec.strip_leading_space = starts;
  return {};
}

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
  return unimplemented("tokenizer.json: the pre-tokenizer '{}' is not supported", type);
}

Status read_decoder(const Json* part, TokenizerSpec& spec) {
  if (part == nullptr) return {};
  SKEIN_ASSIGN(const std::string type, type_of(*part, "decoder"));
  if (type == "Sequence") return read_each(*part, "decoders", spec, read_decoder);
  if (type == "ByteLevel") {
    spec.decoder = TokenizerSpec::Decoder::kByteLevel;
    return {};
  }
  if (type == "Metaspace") {
    SKEIN_TRY(check_replacement(*part));
    SKEIN_ASSIGN(const Step::Prepend prepend, prepend_of(*part));
    spec.decoder = TokenizerSpec::Decoder::kMetaspace;
    spec.strip_leading_space = prepend != Step::Prepend::kNever;
    return {};
  }
  if (type == "Replace") return read_decoder_replace(*part, spec);
  if (type == "Strip") return read_decoder_strip(*part, spec);
  // Byte pieces are bytes anyway, and so are their neighbours joined.
  if (type == "ByteFallback" || type == "Fuse") return {};
  return unimplemented("tokenizer.json: the decoder '{}' is not supported", type);
}

Status read_post_processor(const Json* part, TokenizerSpec& spec) {
  if (part == nullptr) return {};
  SKEIN_ASSIGN(const std::string type, type_of(*part, "post-processor"));
  if (type == "Sequence") return read_each(*part, "processors", spec, read_post_processor);
  if (type == "TemplateProcessing") return read_template(*part, spec);
  if (type == "RobertaProcessing" || type == "BertProcessing")
    return read_pair_processing(*part, spec);
  if (type == "ByteLevel") return {};  // changes offsets only
  return unimplemented("tokenizer.json: the post-processor '{}' is not supported", type);
}

}  // namespace
}  // namespace tokenizer_json

namespace {

using tokenizer_json::Json;
using tokenizer_json::member;
using tokenizer_json::read;

constexpr int kMaxDepth = 64;
constexpr size_t kMaxHoles = 65'536;

// The two lists that make nearly all of the file; taken out while parsing, because a document of
// half a million nodes costs more than everything else together.
struct Lists {
  FlatStrings vocab;
  std::vector<int64_t> ids;    // BPE: of the vocab's entries
  std::vector<double> scores;  // unigram: likewise
  FlatStrings merges;
};

// The parser's callback: keeps the small parts in the document and moves the entries of model.vocab
// and model.merges into lists. It throws std::runtime_error, since that is how to stop the parser.
class ListReader {
 public:
  explicit ListReader(Lists& lists) : lists_(lists) {}

  bool operator()(int depth, Json::parse_event_t event, Json& value) {
    if (depth > kMaxDepth) throw std::runtime_error("nested too deeply");
    if (event == Json::parse_event_t::key) return take_key(depth, value);
    if (!in_model_ || section_ == Section::kOther || depth < 3) return true;
    if (event == Json::parse_event_t::value) {
      if (section_ == Section::kVocab) {
        take_vocab(value);
      } else {
        take_merge(depth, value);
      }
      return false;
    }
    // Only the pairs of a unigram vocabulary and of the newer form of merges are lists.
    if (depth != 3 || event == Json::parse_event_t::object_start) {
      throw std::runtime_error("model.vocab or model.merges has something that is no entry");
    }
    if (event == Json::parse_event_t::array_end) end_pair();
    return event == Json::parse_event_t::array_start;  // look inside, then drop
  }

 private:
  enum class Section : uint8_t { kOther, kVocab, kMerges };

  bool take_key(int depth, const Json& key) {
    const auto& name = key.get_ref<const std::string&>();
    if (depth == 1) in_model_ = name == "model";
    if (depth <= 2) section_ = Section::kOther;
    if (depth == 2 && in_model_) {
      if (name == "vocab") section_ = Section::kVocab;
      if (name == "merges") section_ = Section::kMerges;
    }
    if (depth < 3 || !in_model_ || section_ == Section::kOther) return true;
    if (section_ != Section::kVocab || depth != 3) {
      throw std::runtime_error("model.vocab or model.merges has something that is no entry");
    }
    add_piece(name);
    return false;
  }

  void add_piece(const std::string& text) {
    if (lists_.vocab.size() >= kMaxVocabulary) throw std::runtime_error("too many pieces");
    lists_.vocab.push_back(text);
  }

  void take_vocab(const Json& value) {
    if (value.is_string()) {
      add_piece(value.get_ref<const std::string&>());
    } else if (value.is_number_integer() && lists_.ids.size() + 1 == lists_.vocab.size()) {
      lists_.ids.push_back(value.get<int64_t>());
    } else if (value.is_number() && lists_.scores.size() + 1 == lists_.vocab.size()) {
      lists_.scores.push_back(value.get<double>());
    } else {
      throw std::runtime_error("model.vocab has an entry that is neither an id nor a score");
    }
  }

  void take_merge(int depth, const Json& value) {
    if (!value.is_string()) throw std::runtime_error("model.merges has an entry that is no string");
    if (lists_.merges.size() / 2 >= kMaxMerges) throw std::runtime_error("too many merges");
    const auto& text = value.get_ref<const std::string&>();
    if (depth > 3) {
      lists_.merges.push_back(text);
      return;
    }
    const size_t space = text.find(' ');
    if (space == std::string::npos) throw std::runtime_error("a merge has no space");
    lists_.merges.push_back(std::string_view(text).substr(0, space));
    lists_.merges.push_back(std::string_view(text).substr(space + 1));
  }

  void end_pair() {
    if (section_ == Section::kMerges && lists_.merges.size() % 2 != 0) {
      throw std::runtime_error("a merge is not a pair");
    }
    // A score without a fraction reads as an integer.
    if (section_ == Section::kVocab && lists_.ids.size() == 1 &&
        lists_.scores.size() + 1 == lists_.vocab.size()) {
      lists_.scores.push_back(static_cast<double>(lists_.ids.back()));
      lists_.ids.clear();
    }
  }

  Lists& lists_;
  bool in_model_ = false;
  Section section_ = Section::kOther;
};

Result<Json> parse(std::string_view text, Lists& lists) {
  try {
    return Json::parse(text.begin(), text.end(), ListReader(lists));
  } catch (const std::exception& error) {
    return data_loss("tokenizer.json: {}", error.what());
  }
}

Result<int64_t> id_of(const Json& object, std::string_view key) {
  const Json* id = member(object, key);
  if (id == nullptr || !id->is_number_integer()) {
    return data_loss("tokenizer.json: '{}' is not there or no integer", key);
  }
  return id->get<int64_t>();
}

Status read_added(const Json* list, TokenizerSpec& spec) {
  if (list == nullptr) return {};
  if (!list->is_array()) return data_loss("tokenizer.json: added_tokens is no list");
  if (list->size() > kMaxVocabulary) {
    return out_of_range("tokenizer.json: {} added tokens, at most {} are supported", list->size(),
                        kMaxVocabulary);
  }
  for (const Json& item : *list) {
    AddedToken token;
    SKEIN_ASSIGN(const int64_t id, id_of(item, "id"));
    if (id < 0 || static_cast<size_t>(id) >= kMaxVocabulary) {
      return out_of_range("tokenizer.json: an added token has the id {}, at most {} is supported",
                          id, kMaxVocabulary - 1);
    }
    token.id = static_cast<TokenId>(id);
    SKEIN_TRY(read(item, "content", token.text));
    SKEIN_TRY(read(item, "special", token.special));
    SKEIN_TRY(read(item, "normalized", token.normalized));
    SKEIN_TRY(read(item, "lstrip", token.lstrip));
    SKEIN_TRY(read(item, "rstrip", token.rstrip));
    SKEIN_TRY(read(item, "single_word", token.single_word));
    spec.added.push_back(std::move(token));
  }
  return {};
}

// The pieces by id: the vocabulary's, and the added tokens over them.
Status place_pieces(const Lists& lists, TokenizerSpec& spec) {
  const bool listed = spec.model == TokenizerSpec::Model::kUnigram;
  if ((listed ? lists.scores.size() : lists.ids.size()) != lists.vocab.size()) {
    return data_loss("tokenizer.json: model.vocab has {} pieces, {} ids and {} scores",
                     lists.vocab.size(), lists.ids.size(), lists.scores.size());
  }
  size_t count = listed ? lists.vocab.size() : 0;
  for (const int64_t id : lists.ids) {
    if (id < 0 || static_cast<size_t>(id) >= kMaxVocabulary) {
      return out_of_range("tokenizer.json: a piece has the id {}, at most {} is supported", id,
                          kMaxVocabulary - 1);
    }
    count = std::max(count, static_cast<size_t>(id) + 1);
  }
  for (const AddedToken& token : spec.added) {
    count = std::max(count, static_cast<size_t>(token.id) + 1);
  }
  // A few bytes must not make a large table; real files have hardly any holes.
  const size_t entries = lists.vocab.size() + spec.added.size();
  if (count > entries * 4 + kMaxHoles) {
    return out_of_range("tokenizer.json: {} entries have ids up to {}", entries, count - 1);
  }
  std::vector<std::string_view> pieces(count);
  spec.types.assign(count, TokenType::kUnused);  // ids that nothing has
  for (size_t i = 0; i < lists.vocab.size(); ++i) {
    const size_t id = listed ? i : static_cast<size_t>(lists.ids[i]);
    pieces[id] = lists.vocab[i];
    const bool is_byte = spec.byte_fallback && byte_of_piece(lists.vocab[i]) >= 0;
    spec.types[id] = is_byte ? TokenType::kByte : TokenType::kNormal;
  }
  for (const AddedToken& token : spec.added) {
    pieces[static_cast<size_t>(token.id)] = token.text;
    spec.types[static_cast<size_t>(token.id)] =
        token.special ? TokenType::kControl : TokenType::kUserDefined;
  }
  size_t bytes = 0;
  for (const std::string_view piece : pieces) bytes += piece.size();
  if (bytes > kMaxVocabularyBytes) {
    return out_of_range("tokenizer.json: {} bytes of pieces, at most {} are supported", bytes,
                        kMaxVocabularyBytes);
  }
  spec.pieces.reserve(count, bytes);
  for (const std::string_view piece : pieces) spec.pieces.push_back(piece);
  if (listed) {
    spec.scores = lists.scores;
    spec.scores.resize(count, 0);
  }
  return {};
}

// Only what real files do not use is refused: it would change the ids.
Status check_subwords(const Json& model) {
  for (const std::string_view key : {"continuing_subword_prefix", "end_of_word_suffix"}) {
    std::string affix;
    SKEIN_TRY(read(model, key, affix));
    if (!affix.empty())
      return unimplemented("tokenizer.json: {} '{}' is not supported", key, affix);
  }
  return {};
}

Status read_model(const Json& model, Lists& lists, TokenizerSpec& spec) {
  std::string type = lists.scores.empty() ? "BPE" : "Unigram";  // older files do not say
  SKEIN_TRY(read(model, "type", type));
  if (type != "BPE" && type != "Unigram") {
    return unimplemented("tokenizer.json: a model of the type '{}' is not supported", type);
  }
  SKEIN_TRY(read(model, "byte_fallback", spec.byte_fallback));
  if (type == "Unigram") {
    spec.model = TokenizerSpec::Model::kUnigram;
    if (member(model, "unk_id") != nullptr) {
      SKEIN_ASSIGN(const int64_t id, id_of(model, "unk_id"));
      if (id < 0 || static_cast<size_t>(id) >= lists.vocab.size()) {
        return data_loss("tokenizer.json: unk_id is {}, the vocabulary has {}", id,
                         lists.vocab.size());
      }
      spec.unknown = static_cast<TokenId>(id);
    }
    return place_pieces(lists, spec);
  }
  SKEIN_TRY(check_subwords(model));
  SKEIN_TRY(read(model, "fuse_unk", spec.fuse_unknown));
  SKEIN_TRY(read(model, "ignore_merges", spec.ignore_merges));
  SKEIN_TRY(place_pieces(lists, spec));
  spec.merges = std::move(lists.merges);
  std::string unknown;
  SKEIN_TRY(read(model, "unk_token", unknown));
  for (size_t i = 0; !unknown.empty() && i < spec.pieces.size(); ++i) {
    if (spec.pieces[i] == unknown) spec.unknown = static_cast<TokenId>(i);
  }
  return {};
}

}  // namespace

Result<TokenizerSpec> parse_tokenizer_json(std::string_view json) {
  Lists lists;
  SKEIN_ASSIGN(const Json document, parse(json, lists));
  const Json* model = member(document, "model");
  if (model == nullptr) return data_loss("tokenizer.json: there is no model");
  TokenizerSpec spec;
  SKEIN_TRY(read_added(member(document, "added_tokens"), spec));
  SKEIN_TRY(tokenizer_json::read_normalizer(member(document, "normalizer"), spec));
  SKEIN_TRY(tokenizer_json::read_pre_tokenizer(member(document, "pre_tokenizer"), spec));
  SKEIN_TRY(tokenizer_json::read_decoder(member(document, "decoder"), spec));
  SKEIN_TRY(tokenizer_json::read_post_processor(member(document, "post_processor"), spec));
  SKEIN_TRY(read_model(*model, lists, spec));
  return spec;
}

}  // namespace skein
