// LoadedModel: everything that a model path stands for, ready to compute.
//
//   ComputePool pool(threads);
//   SKEIN_ASSIGN(std::unique_ptr<LoadedModel> model, LoadedModel::load(path, {}, pool));
//   model->decoder().forward(batch, kv);
//
// Immutable but for the decoder and the backend, which serve one caller at a time (decoder.h), and
// the cache of forms, which any thread may use; the rest may be read by any thread. Nothing here
// knows of requests.
//
// A device that is lost takes decoder and backend with it, and nothing else: leave_device(), once
// nobody uses them, and after that return_to_device(), which reads the weights once more.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <string>

#include "backend/registry.h"
#include "base/compute_pool.h"
#include "base/status.h"
#include "dialog/chat_format.h"
#include "dialog/find_format.h"
#include "dialog/units.h"
#include "engine/forms/form_cache.h"
#include "engine/loading/load_text.h"
#include "engine/loading/sampling_defaults.h"
#include "engine/loading/vectors.h"
#include "engine/sampling/sampling_params.h"
#include "format/weight_source.h"
#include "model/decoder.h"
#include "text/chat_template.h"

namespace skein {

struct ModelOptions : BackendOptions {
  std::optional<KvType> kv_type;  // default_kv_type() if absent
  uint32_t max_context = 0;       // 0: what the model was made for
  DecoderLimits limits;
  uint32_t device_rows = 0;           // of limits, on a device; 0: the same
  std::optional<VectorKind> vectors;  // that a model makes whose files do not say
  dialog::FormatNames formats = {};   // of calls and thoughts
  SamplingWishes sampling = {};
  Admit admit;        // as the decoder asks it; may be empty
  LoadReport report;  // of the progress; may be empty
  // Where the backend comes from; empty: from the registry.
  std::function<Result<std::unique_ptr<Backend>>(const BackendOptions& options, ComputePool& pool)>
      backend_maker;
};

class LoadedModel {
 public:
  // `path` as open_model takes it. `pool` must outlive the model. Errors name the path.
  static Result<std::unique_ptr<LoadedModel>> load(const std::string& path,
                                                   const ModelOptions& options, ComputePool& pool);

  const WeightSource& source() const { return source_; }
  const ModelSpec& spec() const { return spec_; }
  // What it computes on; nullptr: the process's own processors.
  const std::shared_ptr<const ComputeDevice>& device() const { return device_; }
  bool is_lost() const { return device_ != nullptr && device_->is_lost(); }
  // What the backend made for others is gone before. Until return_to_device() has succeeded there
  // are no decoder() and no backend().
  void leave_device();
  // To the same device. As load() is, it is slow; errors are those of the backend and the decoder.
  Status return_to_device();

  Backend& backend() const { return *backend_; }
  Decoder& decoder() const { return *decoder_; }
  // Held by whoever computes, for one pass at a time: an engine and DirectInference may share a
  // model.
  std::mutex& compute_mutex() const { return compute_mutex_; }
  Precision precision() const { return precision_; }
  // The type of the caches that this model computes with.
  KvType kv_type() const { return kv_type_; }
  uint64_t kv_block_bytes() const {
    return backend_->kv_block_bytes(kv_spec(decoder_->spec(), kv_type_));
  }
  // As Backend::make_kv; the model must outlive it.
  Result<std::unique_ptr<KvCache>> make_kv(uint32_t blocks) const {
    return backend_->make_kv(kv_spec(decoder_->spec(), kv_type_), blocks);
  }

  // nullptr where the files hold none that can be used; the status says why. Such a model takes and
  // gives ids alone.
  const LoadedTokenizer* tokenizer() const { return tokenizer_ ? &*tokenizer_ : nullptr; }
  const Status& tokenizer_status() const { return tokenizer_status_; }
  // The files' own template, ChatML where they hold none, nullptr where it is broken; likewise.
  const ChatTemplate* chat_template() const { return chat_template_ ? &*chat_template_ : nullptr; }
  const Status& chat_template_status() const { return chat_template_status_; }

  // How the model writes calls and thoughts, as its chat template says; never nullptr. Where the
  // template is broken it is the generic one.
  const std::shared_ptr<const dialog::ChatFormat>& chat_format() const { return chat_format_; }
  const dialog::Markers& chat_markers() const { return chat_markers_; }

  // The forms that answers may have; nullptr without a tokenizer.
  FormCache* forms() const { return forms_.get(); }

  // The vectors that it can make of a text.
  const VectorFacts& vectors() const { return vectors_; }
  const RankHead* rank_head() const { return rank_head_ ? &*rank_head_ : nullptr; }  // of kRank

  // Ids below this can be drawn: of the model's vocabulary, those that the tokenizer knows. (Output
  // matrices are often padded.)
  uint32_t vocab() const { return vocab_; }

  // A request that says nothing gets these (sampling_defaults.h) and the model's own stop ids.
  // Valid for vocab().
  const SamplingParams& sampling_defaults() const { return sampling_defaults_.params; }
  SamplingSource sampling_source() const { return sampling_defaults_.source; }

 private:
  LoadedModel(WeightSource source, ModelOptions options, ComputePool& pool)
      : source_(std::move(source)), options_(std::move(options)), pool_(pool) {}
  Status load_text();
  Status load_decoder();
  void load_rank_head();

  WeightSource source_;  // the decoder reads its mapped bytes
  ModelOptions options_;
  ComputePool& pool_;
  Precision precision_ = Precision::kDefault;
  KvType kv_type_ = KvType::kF32;
  std::unique_ptr<Backend> backend_;
  std::unique_ptr<Decoder> decoder_;
  ModelSpec spec_;
  std::shared_ptr<const ComputeDevice> device_;
  mutable std::mutex compute_mutex_;
  std::optional<LoadedTokenizer> tokenizer_;
  Status tokenizer_status_;
  std::optional<ChatTemplate> chat_template_;
  Status chat_template_status_;
  std::shared_ptr<const dialog::ChatFormat> chat_format_;
  dialog::Markers chat_markers_;
  std::unique_ptr<FormCache> forms_;
  VectorFacts vectors_;
  std::optional<RankHead> rank_head_;
  uint32_t vocab_ = 0;
  SamplingDefaults sampling_defaults_;
};

// Reads what a model's files say as a load reads it, to see whether that can be done at all: opens
// and interprets everything that a load interprets: headers, metadata, JSON, tokenizer, chat
// template, sampling defaults, the config and every tensor's presence and shape. Nothing is packed
// and nothing is kept. The status is the one that LoadedModel::load would give for these files.
Status check_model(const std::string& path, uint32_t max_context);

}  // namespace skein
