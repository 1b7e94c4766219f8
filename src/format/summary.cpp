#include "format/summary.h"

#include <algorithm>
#include <array>
#include <fmt/format.h>
#include <map>
#include <utility>

#include "format/quote.h"

namespace skein {
namespace {

// One line per number: how the summary, GGUF (after "ARCHITECTURE.") and config.json call it.
struct ShapeKey {
  std::string_view key;
  std::string_view label;
  std::string_view gguf;
  std::array<const char*, 3> config;
};
constexpr ShapeKey kShapeKeys[] = {
    {"layers", "Layers", "block_count", {"num_hidden_layers", "n_layer"}},
    {"hidden_size", "Hidden size", "embedding_length", {"hidden_size", "n_embd"}},
    {"heads", "Heads", "attention.head_count", {"num_attention_heads", "n_head"}},
    {"kv_heads", "KV heads", "attention.head_count_kv", {"num_key_value_heads"}},
    {"head_size", "Head size", "attention.key_length", {"head_dim"}},
    {"feed_forward_size", "Feed-forward size", "feed_forward_length", {"intermediate_size"}},
    {"experts",
     "Experts",
     "expert_count",
     {"num_local_experts", "num_experts", "n_routed_experts"}},
    {"experts_per_token", "Experts per token", "expert_used_count", {"num_experts_per_tok"}},
    {"expert_size", "Expert size", "expert_feed_forward_length", {"moe_intermediate_size"}},
    {"vocabulary", "Vocabulary", "vocab_size", {"vocab_size"}},
    {"context", "Context length", "context_length", {"max_position_embeddings", "n_positions"}},
    {"sliding_window", "Sliding window", "attention.sliding_window", {"sliding_window"}},
};

using Numbers = std::vector<uint64_t>;  // one, or one a layer; empty when the files do not say

// A number, or an array of one a layer.
Result<Numbers> gguf_numbers(const gguf::Metadata& metadata, const std::string& key) {
  const gguf::Value* value = metadata.find(key);
  if (value == nullptr) return Numbers();
  if (!value->is_array) {
    SKEIN_ASSIGN(const uint32_t number, metadata.get<uint32_t>(key));
    return Numbers{number};
  }
  SKEIN_ASSIGN(const gguf::IntArray array, metadata.get<gguf::IntArray>(key));
  for (size_t i = 0; i < array.size(); ++i) {
    if (!std::in_range<uint32_t>(array[i])) {
      return out_of_range("key {}: element {} is {}", in_quotes(key), i, array[i]);
    }
  }
  return array.to_vector<uint64_t>();
}

Result<Numbers> config_numbers(const Json& config, const ShapeKey& key) {
  for (const char* name : key.config) {
    if (name == nullptr) break;
    const auto it = config.find(name);
    if (it == config.end() || it->is_null()) continue;
    if (!it->is_number_unsigned() || it->get<uint64_t>() > UINT32_MAX) {
      return invalid_argument("config.json: '{}' is not a whole number of 32 bits", name);
    }
    return Numbers{it->get<uint64_t>()};
  }
  return Numbers();
}

// Multimodal models keep the language model's numbers in text_config.
const Json& language_config(const Json& config) {
  const auto it = config.find("text_config");
  return it != config.end() && it->is_object() ? *it : config;
}

std::string string_of(const Json& object, const char* key) {
  const auto it = object.find(key);
  return it != object.end() && it->is_string() ? it->get<std::string>() : "";
}

// The numbers under their keys, with what follows from the others where files leave it out.
class ShapeReader {
 public:
  Status read(const WeightSource& source, const ModelSummary& summary) {
    const std::string& architecture = summary.architecture;
    for (const ShapeKey& key : kShapeKeys) {
      if (source.kind() == SourceKind::kGguf) {
        SKEIN_ASSIGN(numbers_[key.key],
                     gguf_numbers(source.metadata(), fmt::format("{}.{}", architecture, key.gguf)));
      } else {
        SKEIN_ASSIGN(numbers_[key.key],
                     config_numbers(language_config(source.documents().config), key));
      }
    }
    const uint64_t heads = largest("heads");
    if (numbers_["kv_heads"].empty() && heads != 0) numbers_["kv_heads"] = {heads};
    if (numbers_["head_size"].empty() && heads != 0 && largest("hidden_size") != 0) {
      numbers_["head_size"] = {largest("hidden_size") / heads};
    }
    if (numbers_["vocabulary"].empty() && summary.tokenizer.vocabulary != 0) {
      numbers_["vocabulary"] = {summary.tokenizer.vocabulary};
    }
    value_size_ = largest("head_size");
    SKEIN_ASSIGN(const Numbers value_size,
                 gguf_numbers(source.metadata(), architecture + ".attention.value_length"));
    if (!value_size.empty()) value_size_ = value_size.front();
    return ok_status();
  }

  std::vector<ShapeFact> facts() const {
    std::vector<ShapeFact> facts;
    for (const ShapeKey& key : kShapeKeys) {
      if (!numbers_.at(key.key).empty()) facts.push_back({key.key, key.label, largest(key.key)});
    }
    return facts;
  }

  std::optional<uint64_t> kv_bytes_per_token() const {
    const Numbers& kv_heads = numbers_.at("kv_heads");
    const uint64_t layers = largest("layers");
    if (layers == 0 || kv_heads.empty() || largest("head_size") == 0) return std::nullopt;
    uint64_t heads = saturating_product(layers, kv_heads.front());
    if (kv_heads.size() > 1) {
      heads = 0;
      for (const uint64_t of_layer : kv_heads) heads += of_layer;  // 2^24 of 2^32 at most
    }
    return saturating_product(heads, 2 * (largest("head_size") + value_size_));
  }

 private:
  uint64_t largest(std::string_view key) const {
    const Numbers& numbers = numbers_.at(key);
    return numbers.empty() ? 0 : *std::max_element(numbers.begin(), numbers.end());
  }

  std::map<std::string_view, Numbers> numbers_;
  uint64_t value_size_ = 0;
};

// Counts a quantized module of MLX as one tensor of the values that it stands for.
Status count_tensors(const WeightSource& source, ModelSummary& summary) {
  constexpr std::string_view kParts[] = {".weight", ".scales", ".biases"};
  std::map<std::string, TypeShare> shares;
  for (const NamedTensor& tensor : source.tensors()) {
    std::string type(info(tensor.view.type).name);
    uint64_t parameters = tensor.view.elements(), tensors = 1;
    for (const std::string_view part : kParts) {
      if (!tensor.name.ends_with(part)) continue;
      const std::string_view name = tensor.name;
      SKEIN_ASSIGN(const std::optional<AffineView> matrix,
                   source.affine(name.substr(0, name.size() - part.size())));
      if (!matrix) continue;
      type =
          fmt::format("affine {}-bit, groups of {}", matrix->format().bits, matrix->format().group);
      const bool is_values = part == kParts[0];
      tensors = is_values ? 1 : 0;
      parameters = is_values ? *matrix->shape().checked_elements() : 0;
    }
    TypeShare& share = shares[type];
    share.tensors += tensors;
    share.parameters += parameters;
    share.bytes += tensor.view.bytes.size();
    summary.parameters += parameters;
    summary.tensor_bytes += tensor.view.bytes.size();
  }
  for (auto& [type, share] : shares) {
    share.type = type;
    summary.types.push_back(std::move(share));
  }
  std::sort(summary.types.begin(), summary.types.end(), [](const TypeShare& a, const TypeShare& b) {
    return a.bytes != b.bytes ? a.bytes > b.bytes : a.type < b.type;
  });
  return ok_status();
}

// Every key "tokenizer.ggml.ROLE_token_id".
Result<TokenizerFacts> gguf_tokenizer(const gguf::Metadata& metadata) {
  constexpr std::string_view kPrefix = "tokenizer.ggml.", kSuffix = "_token_id";
  TokenizerFacts facts;
  SKEIN_ASSIGN(const auto kind, metadata.get_or<std::string_view>("tokenizer.ggml.model", {}));
  SKEIN_ASSIGN(const auto pre, metadata.get_or<std::string_view>("tokenizer.ggml.pre", {}));
  SKEIN_ASSIGN(const auto tokens, metadata.get_or<gguf::StringArray>("tokenizer.ggml.tokens", {}));
  facts.kind = kind;
  facts.pre_tokenizer = pre;
  facts.vocabulary = tokens.size();
  for (const gguf::Value& value : metadata.values()) {
    if (!value.key.starts_with(kPrefix) || !value.key.ends_with(kSuffix)) continue;
    SKEIN_ASSIGN(const int64_t id, metadata.get<int64_t>(value.key));
    SpecialToken token;
    token.role =
        value.key.substr(kPrefix.size(), value.key.size() - kPrefix.size() - kSuffix.size());
    token.id = id;
    if (std::in_range<size_t>(id) && static_cast<size_t>(id) < tokens.size()) {
      token.text = tokens[static_cast<size_t>(id)];
    }
    facts.special.push_back(std::move(token));
  }
  return facts;
}

// "eos_token_id" is a number or a list of them; generation_config.json overrules config.json.
std::vector<SpecialToken> config_special_tokens(const HfDocuments& documents) {
  std::vector<SpecialToken> special;
  for (const char* role : {"bos", "eos", "pad", "unk"}) {
    const std::string key = fmt::format("{}_token_id", role);
    for (const Json* document : {&documents.generation_config, &documents.config}) {
      const auto it = document->find(key);
      if (it == document->end() || it->is_null()) continue;
      for (const Json& id : it->is_array() ? *it : Json::array({*it})) {
        if (id.is_number_integer()) special.push_back({role, id.get<int64_t>(), ""});
      }
      break;
    }
  }
  return special;
}

// Added tokens are in the vocabulary of some files and beside it in others: the largest id decides.
void count_vocabulary(const Json& tokenizer, TokenizerFacts& facts) {
  const auto model = tokenizer.find("model");
  if (model == tokenizer.end() || !model->is_object()) return;
  facts.kind = string_of(*model, "type");
  if (const auto vocab = model->find("vocab"); vocab != model->end()) {
    facts.vocabulary = vocab->size();
  }
  const auto added = tokenizer.find("added_tokens");
  if (added == tokenizer.end() || !added->is_array()) return;
  std::map<int64_t, std::string> texts;
  for (const Json& token : *added) {
    const auto id = token.find("id");
    if (!token.is_object() || id == token.end() || !id->is_number_unsigned()) continue;
    if (id->get<uint64_t>() > UINT32_MAX) continue;
    facts.vocabulary = std::max(facts.vocabulary, id->get<uint64_t>() + 1);
    texts[id->get<int64_t>()] = string_of(token, "content");
  }
  for (SpecialToken& token : facts.special) {
    if (const auto it = texts.find(token.id); it != texts.end()) token.text = it->second;
  }
}

Result<TokenizerFacts> folder_tokenizer(const HfDocuments& documents) {
  TokenizerFacts facts;
  facts.special = config_special_tokens(documents);
  if (!documents.tokenizer_file) return facts;
  SKEIN_ASSIGN(const Json tokenizer, documents.tokenizer());
  count_vocabulary(tokenizer, facts);
  return facts;
}

}  // namespace

std::optional<uint64_t> ModelSummary::shape_of(std::string_view key) const {
  for (const ShapeFact& fact : shape) {
    if (fact.key == key) return fact.value;
  }
  return std::nullopt;
}

uint64_t saturating_product(uint64_t a, uint64_t b) {
  uint64_t product = 0;
  return __builtin_mul_overflow(a, b, &product) ? UINT64_MAX : product;
}

Result<ModelSummary> summarize(const WeightSource& source) {
  ModelSummary summary;
  if (source.kind() == SourceKind::kGguf) {
    const gguf::Metadata& metadata = source.metadata();
    SKEIN_ASSIGN(const auto architecture,
                 metadata.get_or<std::string_view>("general.architecture", {}));
    SKEIN_ASSIGN(const auto name, metadata.get_or<std::string_view>("general.name", {}));
    summary.architecture = architecture;
    summary.name = name;
    SKEIN_ASSIGN(summary.tokenizer, gguf_tokenizer(metadata));
  } else {
    summary.architecture = string_of(source.documents().config, "model_type");
    SKEIN_ASSIGN(summary.tokenizer, folder_tokenizer(source.documents()));
  }
  ShapeReader shape;
  SKEIN_TRY(shape.read(source, summary));
  summary.shape = shape.facts();
  summary.kv_bytes_per_token = shape.kv_bytes_per_token();
  SKEIN_TRY(count_tensors(source, summary));
  SKEIN_ASSIGN(const auto text, source.chat_template());
  if (text) summary.chat_template = std::string(*text);
  return summary;
}

}  // namespace skein
