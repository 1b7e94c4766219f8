#include "engine/loading/vectors.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <fmt/format.h>
#include <utility>

#include "format/quote.h"
#include "model/decoder.h"
#include "tensor/dequantize.h"

namespace skein {
namespace {

constexpr std::array<std::string_view, 4> kKindNames = {"last", "mean", "rank", "cls"};

// Who says what: the kind, nothing at all, or something that cannot be computed.
using Said = Result<std::optional<VectorKind>>;

Said gguf_kind(const gguf::Metadata& metadata, const std::string& key,
               std::string_view architecture, bool of_encoder) {
  SKEIN_ASSIGN(const uint32_t type, metadata.get_or<uint32_t>(key, 0));
  if (type == 0) return std::optional<VectorKind>();
  if (of_encoder) {
    if (type == 1) return std::optional(VectorKind::kMean);
    if (type == 2) return std::optional(VectorKind::kFirst);
    if (type == 4) return std::optional(VectorKind::kRank);
    return unimplemented("{} is {}; 1 (mean), 2 (cls) and 4 (rank) are known of an encoder", key,
                         type);
  }
  SKEIN_ASSIGN(const bool causal,
               metadata.get_or<bool>(fmt::format("{}.attention.causal", architecture), true));
  if (!causal) return unimplemented("its attention is not causal");
  if (type == 1) return std::optional(VectorKind::kMean);
  if (type == 3) return std::optional(VectorKind::kLast);
  if (type == 4) return std::optional(VectorKind::kRank);
  return unimplemented("{} is {}; 1 (mean), 3 (last) and 4 (rank) are known", key, type);
}

bool is_true(const Json& object, const char* key) {
  const auto found = object.find(key);
  return found != object.end() && found->is_boolean() && found->get<bool>();
}
bool is_false(const Json& object, const char* key) {
  const auto found = object.find(key);
  return found != object.end() && found->is_boolean() && !found->get<bool>();
}

// What the modules are, but for the Pooling itself: the decoder, and a vector of length 1, which
// embeddings have anyway.
Status check_modules(const Json& modules) {
  for (const Json& module : modules) {
    const auto type = module.is_object() ? module.find("type") : module.end();
    const std::string name = module.is_object() && type != module.end() && type->is_string()
                                 ? type->get<std::string>()
                                 : std::string();
    const std::string last = name.substr(name.rfind('.') + 1);
    if (last == "Transformer" || last == "Pooling" || last == "Normalize") continue;
    return unimplemented("modules.json has the module {}", in_quotes(name));
  }
  return {};
}

// An encoder that was trained to give labels has a head for them.
bool is_classifier(const Json& config) {
  const auto names = config.find("architectures");
  return names != config.end() && names->is_array() && names->size() == 1 &&
         (*names)[0].is_string() &&
         (*names)[0].get_ref<const std::string&>().ends_with("ForSequenceClassification");
}

// {"pooling_mode_lasttoken": true, ...}, or {"pooling_mode": "lasttoken"}.
Said folder_kind(const HfDocuments& documents, bool of_encoder) {
  const Json& pooling = documents.pooling;
  if (!pooling.is_object()) return std::optional<VectorKind>();
  SKEIN_TRY(check_modules(documents.modules));
  if (!of_encoder && (is_false(documents.config, "is_causal") ||
                      is_true(documents.config, "use_bidirectional_attention"))) {
    return unimplemented("its attention is not causal");
  }
  constexpr std::string_view kPrefix = "pooling_mode_";
  std::vector<std::string> modes;
  for (const auto& [key, value] : pooling.items()) {
    if (key == "pooling_mode" && value.is_string()) modes.push_back(value.get<std::string>());
    if (key.starts_with(kPrefix) && value.is_boolean() && value.get<bool>()) {
      modes.push_back(key.substr(kPrefix.size()));
    }
  }
  const std::string_view row = of_encoder ? "cls_token" : "lasttoken";
  if (modes.size() == 1 && (modes[0] == row || (of_encoder && modes[0] == "cls"))) {
    return std::optional(of_encoder ? VectorKind::kFirst : VectorKind::kLast);
  }
  if (modes.size() == 1 && (modes[0] == "mean_tokens" || modes[0] == "mean")) {
    return std::optional(VectorKind::kMean);
  }
  std::string all;
  for (const std::string& mode : modes) all += (all.empty() ? "" : ", ") + in_quotes(mode);
  return unimplemented("its pooling is {}; '{}' or 'mean_tokens' alone is known",
                       all.empty() ? "none" : all, row);
}

// Row `row` of a small tensor of the file, as floats.
Result<std::vector<float>> row_of_tensor(const TensorView& tensor, uint64_t row, uint64_t width) {
  if (!can_dequantize(tensor.type)) {
    return unimplemented("cls.output.weight has elements of type {}", info(tensor.type).name);
  }
  const size_t bytes = tensor.bytes.size() / tensor.shape[0];
  std::vector<float> out(width);
  dequantize(tensor.type, tensor.bytes.subspan(row * bytes, bytes), out);
  return out;
}

// Which of the labels is this one; `otherwise` where the file names none.
Result<uint64_t> label_index(const WeightSource& source, std::string_view label,
                             uint64_t otherwise) {
  const gguf::Metadata& metadata = source.metadata();
  SKEIN_ASSIGN(const std::string_view family,
               metadata.get_or<std::string_view>("general.architecture", ""));
  const std::string key = fmt::format("{}.classifier.output_labels", family);
  if (!metadata.has(key)) return otherwise;
  SKEIN_ASSIGN(const gguf::StringArray labels, metadata.get<gguf::StringArray>(key));
  const auto found = std::find(labels.begin(), labels.end(), label);
  if (labels.size() == 2 && found != labels.end()) return uint64_t(found - labels.begin());
  return unimplemented("{} has {} labels and not 'yes' and 'no'", key, labels.size());
}

Result<RankHead> classifier_head(const WeightSource& source, const TensorView& weight,
                                 uint32_t hidden) {
  const Shape& shape = weight.shape;
  if (shape.rank() != 2 || shape[0] != 2 || shape[1] != hidden) {
    return invalid_argument("cls.output.weight is {}, it must be [2, {}]", shape.to_string(),
                            hidden);
  }
  SKEIN_ASSIGN(const uint64_t yes, label_index(source, "yes", 0));
  SKEIN_ASSIGN(const uint64_t no, label_index(source, "no", 1));
  RankHead head;
  SKEIN_ASSIGN(head.yes, row_of_tensor(weight, yes, hidden));
  SKEIN_ASSIGN(head.no, row_of_tensor(weight, no, hidden));
  if (const NamedTensor* bias = source.find("cls.output.bias")) {
    const TensorView& view = bias->view;
    if (view.shape.rank() != 1 || view.shape[0] != 2 || view.type != ElementType::kF32) {
      return invalid_argument("cls.output.bias is {}, it must be [2] of F32",
                              view.shape.to_string());
    }
    head.yes_bias = element(view, yes);
    head.no_bias = element(view, no);
  }
  return head;
}

}  // namespace

std::string_view name_of(VectorKind kind) {
  return kKindNames[static_cast<size_t>(kind)];
}

std::optional<VectorKind> vector_kind(std::string_view name) {
  const auto found = std::find(kKindNames.begin(), kKindNames.end(), name);
  if (found == kKindNames.end()) return std::nullopt;
  return static_cast<VectorKind>(found - kKindNames.begin());
}

Pooling pooling_of(const VectorFacts& facts) {
  if (*facts.kind == VectorKind::kMean) return Pooling::kMean;
  return facts.of_encoder ? Pooling::kFirst : Pooling::kLast;
}

VectorFacts read_vectors(const WeightSource& source, std::optional<VectorKind> otherwise) {
  const gguf::Metadata& metadata = source.metadata();
  const bool is_gguf = source.kind() == SourceKind::kGguf;
  VectorFacts facts;
  facts.of_encoder = Decoder::is_encoder(source);
  std::string from = source.documents().pooling_file;
  std::string_view family;
  if (is_gguf) {
    const auto named = metadata.get_or<std::string_view>("general.architecture", "");
    if (named.ok()) family = *named;
    from = fmt::format("{}.pooling_type", family);
  } else if (facts.of_encoder && is_classifier(source.documents().config)) {
    facts.kind = VectorKind::kRank;
    facts.from = "config.json";
    return facts;
  }
  const Said said = is_gguf ? gguf_kind(metadata, from, family, facts.of_encoder)
                            : folder_kind(source.documents(), facts.of_encoder);
  if (!said.ok()) {
    facts.from = from;
    facts.status = said.status();
  } else if (*said) {
    facts.from = from;
    facts.kind = *said;
  } else if (otherwise) {
    facts.from = "--pooling";
    const VectorKind others = facts.of_encoder ? VectorKind::kLast : VectorKind::kFirst;
    if (*otherwise == others) {
      facts.status = unimplemented("pooling '{}' is not one of {}", name_of(others),
                                   facts.of_encoder ? "an encoder" : "a decoder");
    } else {
      facts.kind = otherwise;
    }
  }
  return facts;
}

double RankHead::score(std::span<const float> hidden) const {
  std::vector<double> x(hidden.begin(), hidden.end());
  const auto product = [&](const float* row) {
    double sum = 0;
    for (size_t i = 0; i < hidden.size(); ++i) sum += double{row[i]} * x[i];
    return sum;
  };
  if (!layer.empty()) {
    std::vector<double> made(layer_bias.size());
    for (size_t i = 0; i < made.size(); ++i) {
      made[i] = std::tanh(product(layer.data() + i * hidden.size()) + double{layer_bias[i]});
    }
    x = std::move(made);
  }
  const auto logit = [&](const std::vector<float>& row, float bias) {
    if (row.empty()) return 0.0;
    const double sum = (product(row.data()) + double{bias}) * double{logit_scale};
    const double cap = double{logit_softcap};
    return cap == 0 ? sum : cap * std::tanh(sum / cap);
  };
  return 1 / (1 + std::exp(logit(no, no_bias) - logit(yes, yes_bias)));
}

Result<RankHead> read_encoder_head(const WeightSource& source, const ModelSpec& spec) {
  if (spec.encoder->types < 2) return unimplemented("the model knows one text, ranking needs two");
  const uint32_t hidden = spec.hidden;
  const bool is_gguf = source.kind() == SourceKind::kGguf;
  const std::string label = is_gguf ? "cls.output" : "classifier";
  const bool is_bare = source.find("pooler.dense.weight") != nullptr;
  const std::string before = is_gguf ? "cls" : is_bare ? "pooler.dense" : "bert.pooler.dense";
  const auto read = [&](const std::string& name, const Shape& shape) -> Result<std::vector<float>> {
    SKEIN_ASSIGN(const TensorView view, source.get(name));
    if (view.shape != shape) {
      return invalid_argument("{} is {}, it must be {}", name, view.shape.to_string(),
                              shape.to_string());
    }
    if (!can_dequantize(view.type)) {
      return unimplemented("{} has elements of type {}", name, info(view.type).name);
    }
    std::vector<float> values(view.elements());
    dequantize(view.type, view.bytes, values);
    return values;
  };
  RankHead head;
  SKEIN_ASSIGN(head.layer, read(before + ".weight", {hidden, hidden}));
  SKEIN_ASSIGN(head.layer_bias, read(before + ".bias", {hidden}));
  SKEIN_ASSIGN(head.yes, read(label + ".weight", {1, hidden}));
  SKEIN_ASSIGN(const std::vector<float> bias, read(label + ".bias", {1}));
  head.yes_bias = bias[0];
  return head;
}

Result<RankHead> read_rank_head(const WeightSource& source, const ModelSpec& spec,
                                const Tokenizer& tokenizer) {
  for (const std::string_view turn : {"<|im_start|>", "<|im_end|>"}) {
    const TokenId id = tokenizer.find(turn);
    if (id != kNoToken && tokenizer.is_control(id)) continue;
    return unimplemented("the vocabulary has no control token {}", turn);
  }
  if (const NamedTensor* head = source.find("cls.output.weight")) {
    return classifier_head(source, head->view, spec.hidden);
  }
  const TokenId ids[] = {tokenizer.find("yes"), tokenizer.find("no")};
  if (ids[0] == kNoToken || ids[1] == kNoToken) {
    return unimplemented("the vocabulary has no tokens 'yes' and 'no'");
  }
  SKEIN_ASSIGN(auto rows, Decoder::head_rows(source, ids));
  RankHead head;
  head.yes = std::move(rows[0]);
  head.no = std::move(rows[1]);
  head.logit_scale = spec.logit_scale;
  head.logit_softcap = spec.logit_softcap;
  return head;
}

}  // namespace skein
