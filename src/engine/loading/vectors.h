// What a model makes of a text beside more text: the vector of an embedding, or a score.
//
// The files say so: GGUF's <architecture>.pooling_type; in a folder modules.json and the Pooling
// module's config.json, as sentence-transformers writes them. Where they say nothing, the option
// --pooling counts. What they say and cannot be computed here (attention of a decoder that is not
// causal, a module with weights of its own) is an error, whatever the option says. An encoder makes
// embeddings of its first row or of all of them, or ranks; the first row of a decoder has seen
// nothing, and the last one of an encoder is a separator.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/ids.h"
#include "base/status.h"
#include "engine/loading/load_text.h"
#include "engine/loop/pooling.h"
#include "format/weight_source.h"
#include "model/spec.h"

namespace skein {

enum class VectorKind : uint8_t {
  kLast,   // an embedding: the last token's hidden state
  kMean,   // an embedding: the mean of all tokens' hidden states
  kRank,   // a score: how much likelier "yes" is than "no" after the last token; or what an encoder
           // that was trained to compare two texts says
  kFirst,  // an embedding: an encoder's hidden state of the first token
};

std::string_view name_of(VectorKind kind);  // "last", "mean", "rank", "cls"
// The kind of that name; nullopt for any other text.
std::optional<VectorKind> vector_kind(std::string_view name);

struct VectorFacts {
  std::optional<VectorKind> kind;
  bool of_encoder = false;
  std::string from;  // who says so: "qwen3.pooling_type", "--pooling"; empty: nobody
  Status status;     // not ok: why there is no kind although the files ask for one
};

// How rows become the vector that the kind is made of; there is a kind.
Pooling pooling_of(const VectorFacts& facts);

VectorFacts read_vectors(const WeightSource& source, std::optional<VectorKind> otherwise = {});

// Two rows of an output matrix: what a model that ranks says of a document.
//
// A GGUF file that ranks has them as cls.output.weight, in the order of its labels ("yes" and "no"
// where it names none); else they are those of the tokens "yes" and "no". An encoder has one label,
// "yes", whose logit counts as if that of "no" were 0, and a layer of its own before it.
struct RankHead {
  std::vector<float> yes, no;
  float yes_bias = 0, no_bias = 0;
  float logit_scale = 1, logit_softcap = 0;  // as the decoder's logits
  std::vector<float> layer, layer_bias;      // [width, width] and [width], then tanh; empty: none

  // p(yes) among yes and no: added up in float64, column by column.
  double score(std::span<const float> hidden) const;
};

// Of an encoder: classifier.weight of a folder, cls.output.weight of GGUF, each with one row, and
// the pooler before it. kNotFound names what is missing, kInvalidArgument a shape with both,
// kUnimplemented where the model does not tell two texts from each other.
Result<RankHead> read_encoder_head(const WeightSource& source, const ModelSpec& spec);

// kUnimplemented where the vocabulary has no ChatML turns, which the prompt of such a model is made
// of, or no tokens "yes" and "no".
Result<RankHead> read_rank_head(const WeightSource& source, const ModelSpec& spec,
                                const Tokenizer& tokenizer);

}  // namespace skein
