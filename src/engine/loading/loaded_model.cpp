#include "engine/loading/loaded_model.h"

#include <algorithm>
#include <fmt/format.h>
#include <span>
#include <utility>
#include <vector>

#include "base/log.h"
#include "dialog/answer_parser.h"
#include "dialog/find_format.h"
#include "engine/loading/load_text.h"

namespace skein {
namespace {

dialog::ChatFormat find_chat_format(const WeightSource& source) {
  const auto text = read_chat_template(source);
  if (!text.ok()) return {};
  auto format = dialog::find_format(*text);
  return format.ok() ? std::move(*format) : dialog::ChatFormat();
}

// One that no text becomes.
bool is_token(const Tokenizer& tokenizer, const std::string& marker) {
  return dialog::Markers(tokenizer, std::span(&marker, 1)).token(marker) != kNoToken;
}

Result<std::unique_ptr<Backend>> backend_for(const ModelOptions& options, ComputePool& pool) {
  return options.backend_maker ? options.backend_maker(options, pool) : make_backend(options, pool);
}

}  // namespace

Result<std::unique_ptr<LoadedModel>> LoadedModel::load(const std::string& path,
                                                       const ModelOptions& options,
                                                       ComputePool& pool) {
  SKEIN_ASSIGN(std::unique_ptr<Backend> backend, backend_for(options, pool));
  SKEIN_ASSIGN(WeightSource source, open_model(path));
  std::unique_ptr<LoadedModel> model(new LoadedModel(std::move(source), options, pool));
  model->backend_ = std::move(backend);
  model->device_ = model->backend_->device();
  if (model->device_ != nullptr && options.device_rows > 0) {
    model->options_.limits.rows = options.device_rows;
  }
  model->precision_ = options.precision;
  model->kv_type_ = options.kv_type.value_or(default_kv_type(options.precision));
  SKEIN_TRY(model->load_text());
  model->vectors_ = read_vectors(model->source_, options.vectors);
  model->source_.release();
  SKEIN_TRY(model->load_decoder());
  model->spec_ = model->decoder_->spec();
  model->vocab_ = model->spec_.vocab;
  if (const LoadedTokenizer* tokenizer = model->tokenizer()) {
    model->vocab_ =
        std::min(model->vocab_, static_cast<uint32_t>(tokenizer->tokenizer.vocab_size()));
    for (const TokenId id : tokenizer->stop_ids) {
      if (static_cast<uint32_t>(id) < model->vocab_) {
        model->sampling_defaults_.params.stop_ids.push_back(id);
      }
    }
    model->forms_ = std::make_unique<FormCache>(tokenizer->tokenizer, model->vocab_, FormLimits{},
                                                model->chat_markers_.tokens());
  }
  model->load_rank_head();
  return model;
}

Status LoadedModel::load_decoder() {
  auto decoder = Decoder::load(source_, *backend_,
                               {.limits = options_.limits,
                                .max_context = options_.max_context,
                                .admit = options_.admit,
                                .report = options_.report});
  options_.admit = {};  // the memory was granted
  options_.report = {};
  if (!decoder.ok()) {
    return {decoder.status().code(), fmt::format("{}: {}", source_.path(), decoder.message())};
  }
  decoder_ = std::move(*decoder);
  return ok_status();
}

void LoadedModel::leave_device() {
  const std::lock_guard turn(compute_mutex_);
  decoder_.reset();
  backend_.reset();
}

Status LoadedModel::return_to_device() {
  const std::lock_guard turn(compute_mutex_);
  if (device_) options_.device = device_->id();  // and no other, which may have other bits
  SKEIN_ASSIGN(backend_, backend_for(options_, pool_));
  return load_decoder();
}

void LoadedModel::load_rank_head() {
  if (vectors_.kind != VectorKind::kRank) return;
  Result<RankHead> head = !tokenizer_     ? Result<RankHead>(tokenizer_status_)
                          : spec_.encoder ? read_encoder_head(source_, spec_)
                                          : read_rank_head(source_, spec_, tokenizer_->tokenizer);
  if (head.ok()) {
    rank_head_ = std::move(*head);
  } else {
    vectors_.kind.reset();
    vectors_.status = head.status();
  }
}

Status LoadedModel::load_text() {
  sampling_defaults_ = find_sampling_defaults(source_, options_.sampling);
  for (const std::string& what : std::exchange(sampling_defaults_.ignored, {})) {
    log_warning("{}: {}; ignored", source_.path(), what);
  }
  auto tokenizer = load_tokenizer(source_);
  tokenizer_status_ = tokenizer.status();
  if (tokenizer.ok()) tokenizer_.emplace(std::move(*tokenizer));
  auto chat_template = load_chat_template(source_);
  chat_template_status_ = chat_template.status();
  if (chat_template.ok()) chat_template_.emplace(std::move(*chat_template));
  dialog::ChatFormat format = find_chat_format(source_);
  SKEIN_TRY(dialog::choose_formats(options_.formats, format));
  if (tokenizer_ && is_token(tokenizer_->tokenizer, format.habits.result_end)) {
    format.habits.result_end.clear();
  }
  chat_format_ = std::make_shared<const dialog::ChatFormat>(std::move(format));
  if (tokenizer_) chat_markers_ = dialog::markers_of(*chat_format_, tokenizer_->tokenizer);
  return {};
}

Status check_model(const std::string& path, uint32_t max_context) {
  SKEIN_ASSIGN(const WeightSource source, open_model(path));
  // A model without usable text can be served by ids, so that their statuses count for nothing
  // here.
  (void)find_sampling_defaults(source, {});
  (void)load_tokenizer(source).status();
  (void)load_chat_template(source).status();
  (void)find_chat_format(source);
  (void)read_vectors(source);
  const Status checked = Decoder::check_source(source, max_context);
  if (checked.ok()) return {};
  return {checked.code(), fmt::format("{}: {}", path, checked.message())};
}

}  // namespace skein
