#include "text/tokenizer_json_writer.h"

#include <algorithm>
#include <nlohmann/json.hpp>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "text/utf8.h"

namespace skein {
namespace {

using Json = nlohmann::json;

Json split_of(const PreTokenizerStep& step) {
  return {{"type", "Split"},
          {"pattern", {{"Regex", regex_for_splitter(step.splitter)}}},
          {"behavior", "Isolated"},
          {"invert", false}};
}

Json byte_level_part(bool use_regex) {
  return {{"type", "ByteLevel"},
          {"add_prefix_space", false},
          {"trim_offsets", true},
          {"use_regex", use_regex}};
}

Result<Json> pre_tokenizer_of(const TokenizerSpec& spec) {
  if (spec.model == TokenizerSpec::Model::kSpmBpe) return Json();
  Json parts = Json::array();
  for (const PreTokenizerStep& step : spec.pre_tokenizer) {
    const bool is_plain = step.kind == PreTokenizerStep::Kind::kSplit && step.pattern.empty() &&
                          step.behavior == PreTokenizerStep::Behavior::kIsolated && !step.invert;
    if (!is_plain || regex_for_splitter(step.splitter).empty()) {
      return unimplemented("its pre-tokenizer has no regex that others know");
    }
    parts.push_back(split_of(step));
  }
  parts.push_back(byte_level_part(false));
  return Json{{"type", "Sequence"}, {"pretokenizers", std::move(parts)}};
}

Result<Json> normalizer_of(const TokenizerSpec& spec) {
  Json parts = Json::array();
  for (const NormalizerStep& step : spec.normalizer) {
    if (step.kind == NormalizerStep::Kind::kPrepend) {
      // What is put before is replaced next, like any other space.
      parts.push_back({{"type", "Prepend"}, {"prepend", kMetaspace}});
    } else if (step.kind == NormalizerStep::Kind::kReplace) {
      parts.push_back({{"type", "Replace"},
                       {"pattern", {{"String", step.pattern}}},
                       {"content", step.content}});
    } else {
      return unimplemented("its normalizer is of another kind");
    }
  }
  if (parts.empty()) return Json();
  return Json{{"type", "Sequence"}, {"normalizers", std::move(parts)}};
}

Json decoder_of(const TokenizerSpec& spec) {
  if (spec.byte_level) return byte_level_part(true);
  Json parts =
      Json::array({{{"type", "Replace"}, {"pattern", {{"String", kMetaspace}}}, {"content", " "}},
                   {{"type", "ByteFallback"}},
                   {{"type", "Fuse"}}});
  if (spec.strip_leading_space) {
    parts.push_back({{"type", "Strip"}, {"content", " "}, {"start", 1}, {"stop", 0}});
  }
  return {{"type", "Sequence"}, {"decoders", std::move(parts)}};
}

// What goes around a text.
Json post_processor_of(const TokenizerSpec& spec) {
  if (spec.prefix.empty() && spec.suffix.empty()) return nullptr;
  Json special = Json::object();
  const auto add = [&](const std::vector<TokenId>& ids, int of, Json& list) {
    for (const TokenId id : ids) {
      const std::string text(spec.pieces[static_cast<size_t>(id)]);
      list.push_back({{"SpecialToken", {{"id", text}, {"type_id", of}}}});
      special[text] = {{"id", text}, {"ids", {id}}, {"tokens", {text}}};
    }
  };
  const auto around = [&](std::string_view sequence, int of, Json& list) {
    add(spec.prefix, of, list);
    list.push_back({{"Sequence", {{"id", sequence}, {"type_id", of}}}});
    add(spec.suffix, of, list);
  };
  Json single = Json::array();
  around("A", 0, single);
  Json pair = single;
  around("B", 1, pair);
  return {{"type", "TemplateProcessing"},
          {"single", std::move(single)},
          {"pair", std::move(pair)},
          {"special_tokens", std::move(special)}};
}

Json added_of(const TokenizerSpec& spec) {
  std::vector<AddedToken> added = spec.added;
  std::sort(added.begin(), added.end(),
            [](const AddedToken& a, const AddedToken& b) { return a.id < b.id; });
  Json list = Json::array();
  for (const AddedToken& token : added) {
    list.push_back({{"id", token.id},
                    {"content", token.text},
                    {"single_word", token.single_word},
                    {"lstrip", token.lstrip},
                    {"rstrip", token.rstrip},
                    {"normalized", token.normalized},
                    {"special", token.special}});
  }
  return list;
}

// SentencePiece merges any two pieces that make one, the best score first: as a list of merges,
// these pairs in that order.
Json merges_of_scores(const TokenizerSpec& spec) {
  std::unordered_map<std::string_view, size_t> ids;
  for (size_t i = 0; i < spec.pieces.size(); ++i) ids.emplace(spec.pieces[i], i);
  struct Merge {
    double score;
    size_t piece, left, right;
  };
  std::vector<Merge> merges;
  for (size_t i = 0; i < spec.pieces.size(); ++i) {
    if (!spec.types.empty() && spec.types[i] != TokenType::kNormal) continue;
    const std::string_view piece = spec.pieces[i];
    for (size_t cut = 1; cut < piece.size(); ++cut) {
      const auto left = ids.find(piece.substr(0, cut));
      const auto right = left == ids.end() ? left : ids.find(piece.substr(cut));
      if (right != ids.end()) merges.push_back({spec.scores[i], i, left->second, right->second});
    }
  }
  std::stable_sort(merges.begin(), merges.end(), [](const Merge& a, const Merge& b) {
    return a.score != b.score ? a.score > b.score : a.piece < b.piece;
  });
  Json list = Json::array();
  for (const Merge& merge : merges) {
    list.push_back(std::string(spec.pieces[merge.left]) + " " +
                   std::string(spec.pieces[merge.right]));
  }
  return list;
}

Json merges_of(const TokenizerSpec& spec) {
  if (spec.model == TokenizerSpec::Model::kSpmBpe) return merges_of_scores(spec);
  Json list = Json::array();
  for (size_t i = 0; i + 1 < spec.merges.size(); i += 2) {
    list.push_back(std::string(spec.merges[i]) + " " + std::string(spec.merges[i + 1]));
  }
  return list;
}

Json model_of(const TokenizerSpec& spec) {
  Json vocab = Json::object();
  for (size_t i = 0; i < spec.pieces.size(); ++i) vocab.emplace(spec.pieces[i], i);
  Json unknown;
  if (spec.unknown != kNoToken) unknown = spec.pieces[static_cast<size_t>(spec.unknown)];
  return {{"type", "BPE"},
          {"dropout", nullptr},
          {"unk_token", std::move(unknown)},
          {"continuing_subword_prefix", nullptr},
          {"end_of_word_suffix", nullptr},
          {"fuse_unk", spec.model == TokenizerSpec::Model::kSpmBpe || spec.fuse_unknown},
          {"byte_fallback", spec.byte_fallback},
          {"ignore_merges", spec.ignore_merges},
          {"vocab", std::move(vocab)},
          {"merges", merges_of(spec)}};
}

}  // namespace

Result<std::string> write_tokenizer_json(const TokenizerSpec& spec) {
  const bool is_bpe = spec.model == TokenizerSpec::Model::kBpe && spec.byte_level;
  if (!is_bpe && spec.model != TokenizerSpec::Model::kSpmBpe) {
    return unimplemented("it is neither BPE over bytes nor SentencePiece's BPE");
  }
  for (size_t i = 0; i < spec.pieces.size(); ++i) {
    if (utf8_repaired(spec.pieces[i]) != spec.pieces[i]) {
      return data_loss("token {} is no UTF-8", i);
    }
  }
  SKEIN_ASSIGN(Json normalizer, normalizer_of(spec));
  SKEIN_ASSIGN(Json pre_tokenizer, pre_tokenizer_of(spec));
  const Json document = {{"version", "1.0"},
                         {"truncation", nullptr},
                         {"padding", nullptr},
                         {"added_tokens", added_of(spec)},
                         {"normalizer", std::move(normalizer)},
                         {"pre_tokenizer", std::move(pre_tokenizer)},
                         {"post_processor", post_processor_of(spec)},
                         {"decoder", decoder_of(spec)},
                         {"model", model_of(spec)}};
  return document.dump();
}

}  // namespace skein
