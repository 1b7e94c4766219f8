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

constexpr std::array<std::string_view, 3> kKindNames = {"last", "mean", "rank"};

// Who says what: the kind, nothing at all, or something that cannot be computed.
using Said = Result<std::optional<VectorKind>>;

Said gguf_kind(const gguf::Metadata& metadata, const std::string& key,
               std::string_view architecture) {
  SKEIN_ASSIGN(const uint32_t type, metadata.get_or<uint32_t>(key, 0));
  if (type == 0) return std::optional<VectorKind>();
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

// {"pooling_mode_lasttoken": true, ...}, or {"pooling_mode": "lasttoken"}.
Said folder_kind(const HfDocuments& documents) {
  const Json& pooling = documents.pooling;
  if (!pooling.is_object()) return std::optional<VectorKind>();
  SKEIN_TRY(check_modules(documents.modules));
  if (is_false(documents.config, "is_causal") ||
      is_true(documents.config, "use_bidirectional_attention")) {
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
  if (modes.size() == 1 && modes[0] == "lasttoken") return std::optional(VectorKind::kLast);
  if (modes.size() == 1 && (modes[0] == "mean_tokens" || modes[0] == "mean")) {
    return std::optional(VectorKind::kMean);
  }
  std::string all;
  for (const std::string& mode : modes) all += (all.empty() ? "" : ", ") + in_quotes(mode);
  return unimplemented("its pooling is {}; 'lasttoken' or 'mean_tokens' alone is known",
                       all.empty() ? "none" : all);
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

Pooling pooling_of(VectorKind kind) {
  return kind == VectorKind::kMean ? Pooling::kMean : Pooling::kLast;
}

VectorFacts read_vectors(const WeightSource& source, std::optional<VectorKind> otherwise) {
  const gguf::Metadata& metadata = source.metadata();
  const bool is_gguf = source.kind() == SourceKind::kGguf;
  std::string from = source.documents().pooling_file;
  std::string_view family;
  if (is_gguf) {
    const auto named = metadata.get_or<std::string_view>("general.architecture", "");
    if (named.ok()) family = *named;
    from = fmt::format("{}.pooling_type", family);
  }
  const Said said = is_gguf ? gguf_kind(metadata, from, family) : folder_kind(source.documents());
  if (!said.ok()) return {.kind = {}, .from = from, .status = said.status()};
  if (*said) return {.kind = *said, .from = from, .status = {}};
  if (otherwise) return {.kind = otherwise, .from = "--pooling", .status = {}};
  return {};
}

double RankHead::score(std::span<const float> hidden) const {
  const auto logit = [&](const std::vector<float>& row, float bias) {
    double sum = 0;
    for (size_t i = 0; i < row.size(); ++i) sum += double{row[i]} * double{hidden[i]};
    sum = (sum + double{bias}) * double{logit_scale};
    const double cap = double{logit_softcap};
    return cap == 0 ? sum : cap * std::tanh(sum / cap);
  };
  return 1 / (1 + std::exp(logit(no, no_bias) - logit(yes, yes_bias)));
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
