// Weights: the tensors of a model after the backend has made them its own.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include "backend/backend.h"
#include "base/status.h"
#include "model/decoder.h"
#include "model/families/family.h"
#include "model/tensors.h"

namespace skein {

struct Linear {
  std::unique_ptr<Matrix> matrix;
  Floats bias;
};

struct Norm {
  Floats weight;  // nullptr: there is no such norm
  Floats bias;
};

struct Experts {
  std::vector<std::unique_ptr<Matrix>> matrices;
  Floats biases;
};

struct LayerWeights {
  Norm attention_norm, post_attention_norm, ffn_norm, post_ffn_norm, q_norm, k_norm;
  Linear qkv, o, gate_up, down, router;
  Experts expert_gate_up, expert_down;
  Floats sinks;
};

struct Weights {
  std::unique_ptr<Matrix> embedding;         // a table
  std::unique_ptr<Matrix> head;              // an encoder has none
  std::unique_ptr<Matrix> positions, types;  // tables, of an encoder
  Norm embedding_norm;                       // likewise
  bool tied = false;                         // the head is made of the embedding's tensors
  Norm final_norm;
  std::vector<std::unique_ptr<Rope>> ropes;  // of ModelSpec::ropes
  std::vector<LayerWeights> layers;

  // The pointers and matrices above point into this.
  std::vector<Buffer> parameters;
  std::vector<std::vector<std::byte>> repacked;
};

// The tensors' files must outlive the weights; pages of them that will not be read again are given
// back as the weights are made. `report` may be empty. Errors are the backend's.
Result<Weights> make_weights(const ModelTensors& tensors, const ModelDescription& description,
                             const WeightSource& source, Backend& backend,
                             const LoadReport& report);

// The memory that the matrices will take; vectors are not worth counting.
uint64_t memory_for(const ModelTensors& tensors, const Backend& backend);

// Bytes that a step of one row reads: all matrices, but of experts only those that a row uses, and
// of an embedding that is not the output matrix one row.
uint64_t bytes_per_row(const Weights& weights, const ModelSpec& spec);

}  // namespace skein
