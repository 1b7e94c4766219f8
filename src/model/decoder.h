// Decoder: one loaded model. A step goes through it in one pass.
//
//   SKEIN_ASSIGN(std::unique_ptr<Decoder> decoder, Decoder::load(source, backend, limits));
//   SKEIN_ASSIGN(auto cache, backend.make_kv(kv_spec(decoder->spec(), type), blocks));
//   const HostRows logits = backend.read(decoder->forward(input, *cache));
//
// An encoder (ModelSpec::encoder) is one of these too: a sequence is a whole text, every row of it
// depends on all of it, there are no logits, and hidden() is what it gives. Its blocks are scratch
// memory: nobody else's in the same step, and nothing is left in them afterwards.
//
// Deterministic: the logits of a row depend on its sequence's tokens up to it and on nothing else,
// bit for bit (backend.h). forward() allocates nothing. Not thread-safe: one caller at a time.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "backend/backend.h"
#include "base/ids.h"
#include "base/status.h"
#include "format/weight_source.h"
#include "model/spec.h"

namespace skein {

// One step: N tokens of some sequences, in the order of the sequences' rows.
struct StepInput {
  std::span<const TokenId> tokens;       // [N]; each below the vocabulary
  std::span<const Sequence> sequences;   // they partition the N rows, in order
  std::span<const uint32_t> logit_rows;  // the rows whose logits are wanted
  bool wants_hidden = false;             // and hidden() of all rows
  const DrawQueue* before = nullptr;     // a token of ~i is the one that it finds for its row i
};

// The largest step that forward() will see; its memory is taken at load. An encoder's holds its
// whole context at least.
struct DecoderLimits {
  uint32_t rows = 256;
  uint32_t logit_rows = 32;
};

// How many bytes of the file's matrices the backend has made its own. On the thread that loads.
using LoadReport = std::function<void(uint64_t done, uint64_t all)>;

// Asked before memory is taken, with all that the weights, as the backend keeps them, and the
// workspace will take; what it refuses is not loaded.
using Admit = std::function<Status(uint64_t bytes)>;

struct DecoderOptions {
  DecoderLimits limits;
  uint32_t max_context = 0;  // 0: what the model was made for; more is refused
  std::optional<uint64_t>
      memory_bytes{};  // that may be used; nullopt: what the backend has to give
  Admit admit{};       // may be empty
  LoadReport report{};
};

struct Weights;
struct LayerWeights;
struct Workspace;

class Decoder {
 public:
  // Reads the config, checks every tensor's presence and shape, and makes the weights the backend's
  // own. `source` and `backend` must outlive the decoder. Errors, before anything large is touched:
  // kUnimplemented for a family that is not known (its name, and the known ones), kNotFound for a
  // missing tensor (its name), kInvalidArgument for a shape (name and both shapes) or a tensor that
  // has no place, kOutOfRange for a context beyond the model's (both numbers), kResourceExhausted
  // when weights and workspace do not fit the memory there is (both numbers); what admit() gives.
  static Result<std::unique_ptr<Decoder>> load(const WeightSource& source, Backend& backend,
                                               const DecoderOptions& options);
  // Finds out what load() would about the files alone, without memory or a backend.
  static Status check_source(const WeightSource& source, uint32_t max_context);
  // Whether the files are an encoder's, as far as their config tells.
  static bool is_encoder(const WeightSource& source);
  // Rows of the output matrix, [ids, hidden], as the files have them; kOutOfRange for an id that
  // has none.
  static Result<std::vector<std::vector<float>>> head_rows(const WeightSource& source,
                                                           std::span<const TokenId> ids);
  ~Decoder();

  const ModelSpec& spec() const { return spec_; }
  uint32_t max_context() const { return max_context_; }
  const DecoderLimits& limits() const { return limits_; }
  uint64_t weight_bytes() const;  // what a step of one row reads
  // The bytes that it has taken of the backend's memory.
  uint64_t packed_bytes() const { return packed_bytes_; }  // for weights
  uint64_t workspace_bytes() const;

  // Logits [logit_rows, vocab] in backend memory, valid until the next call; the step is queued,
  // Backend::read() waits for it. The input keeps to limits() and max_context(), and its blocks to
  // the cache: CHECKed.
  Rows forward(const StepInput& input, KvCache& cache);
  // The rows of the latest forward() after the last norm, [rows, hidden] in backend memory, where
  // it was asked for them; `rows` is the number of its tokens. Valid as the logits are.
  Rows hidden(size_t rows) const;

 private:
  explicit Decoder(Backend& backend);

  void check(const StepInput& input, const KvCache& cache) const;
  void embed(const Step& step);
  // What a step is computed for: hidden rows, and the logits of all of its rows rather than some.
  struct Wanted {
    bool hidden = false, all_logits = false;
  };
  static bool wants_all_logits(const StepInput& input, const Step& step);
  void pass(const Step& step, const Wanted& wanted, KvCache& cache);
  void attention(uint32_t layer, const Step& step, KvCache& cache);
  void feed_forward(uint32_t layer, size_t rows);
  void dense(const LayerWeights& weights, const LinearInput& in, Rows out);
  void experts(const LayerWeights& weights, Rows in, Rows out);
  void add_to_stream(Rows delta, Floats norm_weight, Floats norm_bias);
  void add_pending_delta(size_t rows);
  LinearInput stream_input(size_t rows, const NormParams* norm);
  LinearInput gathered_input(const Step& step, const NormParams& norm);
  NormParams norm_params(Floats weight, Floats bias) const;

  Backend& backend_;
  ModelSpec spec_;
  DecoderLimits limits_;
  uint32_t max_context_ = 0;
  uint64_t packed_bytes_ = 0;
  std::unique_ptr<Weights> weights_;
  std::unique_ptr<Workspace> workspace_;
  bool delta_is_pending_ = false;  // to be added to the stream
};

}  // namespace skein
