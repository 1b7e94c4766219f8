#include "text/tokenizer_json.h"

#include <exception>
#include <nlohmann/json.hpp>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include "text/tokenizer_json_parts.h"
#include "text/vocabulary.h"

namespace skein {

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

Status find_unknown(const Json& model, TokenizerSpec& spec) {
  std::string unknown;
  SKEIN_TRY(read(model, "unk_token", unknown));
  for (size_t i = 0; !unknown.empty() && i < spec.pieces.size(); ++i) {
    if (spec.pieces[i] == unknown) spec.unknown = static_cast<TokenId>(i);
  }
  return {};
}

Status read_model(const Json& model, Lists& lists, TokenizerSpec& spec) {
  std::string type = lists.scores.empty() ? "BPE" : "Unigram";  // older files do not say
  SKEIN_TRY(read(model, "type", type));
  if (type != "BPE" && type != "Unigram" && type != "WordPiece") {
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
  if (type == "WordPiece") {
    spec.model = TokenizerSpec::Model::kWordPiece;
    spec.continuing_prefix = "##";
    SKEIN_TRY(read(model, "continuing_subword_prefix", spec.continuing_prefix));
    if (member(model, "max_input_chars_per_word") != nullptr) {
      SKEIN_ASSIGN(const int64_t most, id_of(model, "max_input_chars_per_word"));
      spec.max_word_chars = most < 0 ? 0 : static_cast<size_t>(most);
    }
    SKEIN_TRY(place_pieces(lists, spec));
    return find_unknown(model, spec);
  }
  SKEIN_TRY(check_subwords(model));
  SKEIN_TRY(read(model, "fuse_unk", spec.fuse_unknown));
  SKEIN_TRY(read(model, "ignore_merges", spec.ignore_merges));
  SKEIN_TRY(place_pieces(lists, spec));
  spec.merges = std::move(lists.merges);
  return find_unknown(model, spec);
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
