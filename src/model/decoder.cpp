#include "model/decoder.h"

#include <algorithm>
#include <fmt/format.h>
#include <utility>

#include "backend/weight_parts.h"
#include "model/families/family.h"
#include "model/tensors.h"
#include "model/weights.h"
#include "model/workspace.h"

namespace skein {
namespace {

Result<ModelDescription> describe(const WeightSource& source, uint32_t max_context) {
  const ModelFile file{source.tensors(), max_context};
  auto description = source.kind() == SourceKind::kGguf
                         ? describe_gguf(source.metadata(), file)
                         : describe_config(source.documents().config, file);
  if (description.ok()) return description;
  return Status(description.status().code(),
                fmt::format("{}: {}", source.path(), description.message()));
}

Result<uint32_t> context_of(const ModelSpec& spec, uint32_t wanted) {
  if (wanted <= spec.context) return wanted == 0 ? spec.context : wanted;
  return out_of_range("a context of {} tokens, the model was made for {}", wanted, spec.context);
}

Status check_memory(uint64_t weights, uint64_t workspace, uint64_t available) {
  if (weights <= available && workspace <= available - weights) return ok_status();
  return resource_exhausted(
      "the model needs {} MB ({} MB of weights, {} MB of workspace), {} MB of memory can be had",
      (weights + workspace) >> 20, weights >> 20, workspace >> 20, available >> 20);
}

}  // namespace

Decoder::Decoder(Backend& backend) : backend_(backend) {}
Decoder::~Decoder() = default;

Result<std::unique_ptr<Decoder>> Decoder::load(const WeightSource& source, Backend& backend,
                                               const DecoderOptions& options) {
  if (options.limits.rows == 0 || options.limits.logit_rows == 0) {
    return invalid_argument("steps of {} rows and {} rows of logits, each must be 1 at least",
                            options.limits.rows, options.limits.logit_rows);
  }
  SKEIN_ASSIGN(ModelDescription description, describe(source, options.max_context));
  SKEIN_ASSIGN(const uint32_t context, context_of(description.spec, options.max_context));
  if (description.spec.encoder && !backend.runs_encoders()) {
    return unimplemented(
        "family {} is an encoder, which {} does not run; the CPU does (--device cpu)",
        description.spec.family, backend.name());
  }
  SKEIN_ASSIGN(const ModelTensors tensors, resolve_tensors(source, description));
  const uint64_t packed = memory_for(tensors, backend);
  DecoderLimits limits = options.limits;
  if (description.spec.encoder) limits.rows = std::max(limits.rows, context);
  const uint64_t workspace_bytes = Workspace::bytes_for(description.spec, limits);
  if (options.admit) SKEIN_TRY(options.admit(packed + workspace_bytes));
  SKEIN_TRY(
      check_memory(packed, workspace_bytes, options.memory_bytes.value_or(backend.available())));
  std::unique_ptr<Decoder> decoder(new Decoder(backend));
  decoder->packed_bytes_ = packed;
  SKEIN_ASSIGN(Weights weights,
               make_weights(tensors, description, source, backend, options.report));
  SKEIN_ASSIGN(Workspace workspace, Workspace::create(backend, description.spec, limits));
  SKEIN_TRY(source.check_unchanged());
  decoder->weights_ = std::make_unique<Weights>(std::move(weights));
  decoder->workspace_ = std::make_unique<Workspace>(std::move(workspace));
  decoder->spec_ = std::move(description.spec);
  decoder->limits_ = limits;
  decoder->max_context_ = context;
  return decoder;
}

Status Decoder::check_source(const WeightSource& source, uint32_t max_context) {
  SKEIN_ASSIGN(const ModelDescription description, describe(source, max_context));
  SKEIN_TRY(context_of(description.spec, max_context).status());
  return resolve_tensors(source, description).status();
}

bool Decoder::is_encoder(const WeightSource& source) {
  const auto description = describe(source, 0);
  return description.ok() && description->spec.encoder.has_value();
}

Result<std::vector<std::vector<float>>> Decoder::head_rows(const WeightSource& source,
                                                           std::span<const TokenId> ids) {
  SKEIN_ASSIGN(const ModelDescription description, describe(source, 0));
  if (description.spec.encoder) return unimplemented("an encoder has no output matrix");
  SKEIN_ASSIGN(const ModelTensors tensors, resolve_tensors(source, description));
  const LinearTensors& head = description.spec.tied_head ? tensors.embedding : tensors.head;
  SKEIN_ASSIGN(const WeightParts parts, WeightParts::of(head.parts));
  std::vector<std::vector<float>> rows;
  for (const TokenId id : ids) {
    if (id < 0 || static_cast<uint32_t>(id) >= parts.outputs()) {
      return out_of_range("token {} of an output matrix of {}", id, parts.outputs());
    }
    parts.dequantize_row(static_cast<size_t>(id), rows.emplace_back(parts.inputs()));
  }
  return rows;
}

uint64_t Decoder::weight_bytes() const {
  return bytes_per_row(*weights_, spec_);
}

uint64_t Decoder::workspace_bytes() const {
  return workspace_->memory.bytes();
}

// Checks what the backend cannot know; that the sequences partition the rows it has seen.
void Decoder::check(const StepInput& input, const KvCache& cache) const {
  const size_t rows = input.tokens.size();
  SKEIN_CHECK(rows <= limits_.rows, "a step of {} rows, at most {}", rows, limits_.rows);
  SKEIN_CHECK(input.logit_rows.size() <= limits_.logit_rows, "logits of {} rows, at most {}",
              input.logit_rows.size(), limits_.logit_rows);
  for (const TokenId token : input.tokens) {
    if (token < 0 && input.before != nullptr) continue;
    SKEIN_CHECK(token >= 0 && static_cast<uint32_t>(token) < spec_.vocab, "token {} of {}", token,
                spec_.vocab);
  }
  for (const Sequence& sequence : input.sequences) {
    const uint64_t tokens = uint64_t{sequence.start} + sequence.rows;
    SKEIN_CHECK(tokens <= max_context_, "position {} of a context of {}", tokens, max_context_);
    SKEIN_CHECK(!spec_.encoder || sequence.start == 0, "an encoder's text from position {} on",
                sequence.start);
    for (const BlockId block : sequence.blocks.first(blocks_for(tokens))) {
      SKEIN_CHECK(block.value < cache.blocks(), "block {} of {}", block.value, cache.blocks());
    }
  }
}

NormParams Decoder::norm_params(Floats weight, Floats bias) const {
  return {.kind = spec_.norm, .epsilon = spec_.norm_epsilon, .weight = weight, .bias = bias};
}

// Whether logits are wanted of every row, in order, as in a step that reads no prompt.
bool Decoder::wants_all_logits(const StepInput& input, const Step& step) {
  if (input.logit_rows.size() != input.tokens.size() || step.logits != step.rows) return false;
  uint32_t row = 0;
  return std::all_of(input.logit_rows.begin(), input.logit_rows.end(),
                     [&](uint32_t logit_row) { return logit_row == row++; });
}

Rows Decoder::forward(const StepInput& input, KvCache& cache) {
  const Step step = backend_.begin(input.tokens, input.sequences, input.logit_rows, input.before);
  check(input, cache);
  // Other ops, another key.
  SKEIN_CHECK(!spec_.encoder || input.logit_rows.empty(), "logits of an encoder");
  const Wanted wanted{.hidden = input.wants_hidden, .all_logits = wants_all_logits(input, step)};
  const uint64_t key = cache.id() * 4 + (wanted.all_logits ? 2 : 0) + (wanted.hidden ? 1 : 0);
  backend_.run(step, key, [&] { pass(step, wanted, cache); });
  return workspace_->logits.first(input.logit_rows.size());
}

Rows Decoder::hidden(size_t rows) const {
  return (spec_.encoder ? workspace_->stream : workspace_->normed).first(rows);
}

// What the layers begin with.
void Decoder::embed(const Step& step) {
  const Rows stream = workspace_->stream.first(step.rows);
  backend_.embed(*weights_->embedding, step, spec_.embedding_scale, stream);
  if (!spec_.encoder) return;
  const Rows delta = workspace_->delta.first(step.rows);
  backend_.embed_by(RowFact::kText, *weights_->types, step, delta);
  backend_.add(stream, delta, 1);
  backend_.embed_by(RowFact::kPosition, *weights_->positions, step, delta);
  backend_.add(stream, delta, 1);
  const Norm& norm = weights_->embedding_norm;
  backend_.norm(stream, norm_params(norm.weight, norm.bias), stream);
}

void Decoder::pass(const Step& step, const Wanted& wanted, KvCache& cache) {
  Workspace& w = *workspace_;
  delta_is_pending_ = false;  // a step that failed may have left one
  const Rows stream = w.stream.first(step.rows);
  embed(step);
  for (size_t i = 0; i < weights_->ropes.size(); ++i) {
    backend_.rope_angles(step, *weights_->ropes[i], w.angles[i].first(step.rows));
  }
  for (uint32_t i = 0; i < spec_.layers.size(); ++i) {
    attention(i, step, cache);
    feed_forward(i, step.rows);
  }
  if (spec_.encoder) return;  // the stream is what is wanted
  const NormParams norm = norm_params(weights_->final_norm.weight, weights_->final_norm.bias);
  // A row's norm depends on that row alone, so these are the rows that the logits are made of.
  if (wanted.hidden) {
    add_pending_delta(step.rows);
    backend_.norm(stream, norm, w.normed.first(step.rows));
  }
  const Rows logits = w.logits.first(step.logits);
  LinearInput in = wanted.all_logits ? stream_input(step.rows, &norm) : gathered_input(step, norm);
  backend_.linear(in, *weights_->head, nullptr, logits);
  backend_.finish_logits(logits, spec_.logit_scale, spec_.logit_softcap);
}

// stream += residual_scale * delta, normed if there is a norm for it (an encoder norms the sum).
// What is not normed waits for the next product, which reads the stream anyway.
void Decoder::add_to_stream(Rows delta, Floats norm_weight, Floats norm_bias) {
  add_pending_delta(delta.rows);
  delta_is_pending_ = true;
  if (!norm_weight) return;
  if (spec_.encoder) {
    add_pending_delta(delta.rows);
    const Rows stream = workspace_->stream.first(delta.rows);
    return backend_.norm(stream, norm_params(norm_weight, norm_bias), stream);
  }
  backend_.norm(delta, norm_params(norm_weight, norm_bias), delta);
  add_pending_delta(delta.rows);
}

// Adds what waits.
void Decoder::add_pending_delta(size_t rows) {
  if (!delta_is_pending_) return;
  backend_.add(workspace_->stream.first(rows), workspace_->delta.first(rows), spec_.residual_scale);
  delta_is_pending_ = false;
}

LinearInput Decoder::stream_input(size_t rows, const NormParams* norm) {
  LinearInput in(workspace_->stream.first(rows));
  if (delta_is_pending_) in.delta = workspace_->delta.first(rows);
  in.delta_scale = spec_.residual_scale;
  in.norm = norm;
  delta_is_pending_ = false;
  return in;
}

// The rows of the stream whose logits are wanted.
LinearInput Decoder::gathered_input(const Step& step, const NormParams& norm) {
  add_pending_delta(step.rows);
  const Rows gathered = workspace_->gathered.first(step.logits);
  backend_.gather(workspace_->stream.first(step.rows), step, gathered);
  LinearInput in(gathered);
  in.norm = &norm;
  return in;
}

void Decoder::attention(uint32_t layer, const Step& step, KvCache& cache) {
  const LayerWeights& weights = weights_->layers[layer];
  const LayerSpec& spec = spec_.layers[layer];
  const size_t rows = step.rows;
  Workspace& w = *workspace_;
  const Rows qkv = w.qkv.first(rows);
  const NormParams norm = norm_params(weights.attention_norm.weight, weights.attention_norm.bias);
  if (spec_.parallel_residual && spec_.pre_attention_norm) {
    // The feed-forward takes the same rows.
    add_pending_delta(rows);
    backend_.norm(w.stream.first(rows), norm, w.normed.first(rows));
    backend_.linear(w.normed.first(rows), *weights.qkv.matrix, weights.qkv.bias, qkv);
  } else {
    backend_.linear(stream_input(rows, spec_.pre_attention_norm ? &norm : nullptr),
                    *weights.qkv.matrix, weights.qkv.bias, qkv);
  }
  const Rows q = qkv.columns(0, spec_.q_width());
  const Rows k = qkv.columns(spec_.q_width(), spec_.kv_width());
  const Rows v = qkv.columns(spec_.q_width() + spec_.kv_width(), spec_.kv_width());
  NormParams q_norm = norm_params(weights.q_norm.weight, nullptr);
  NormParams k_norm = norm_params(weights.k_norm.weight, nullptr);
  const bool per_head = spec_.qk_norm != QkNorm::kFullWidth;
  q_norm.weight_per_part = k_norm.weight_per_part = spec_.qk_norm == QkNorm::kPerHeadOwn;
  q_norm.parts = per_head ? spec_.heads : 1;
  k_norm.parts = per_head ? spec_.kv_heads : 1;
  QkTransform transform;
  if (spec_.qk_norm != QkNorm::kNone) {
    transform.q_norm = &q_norm;
    transform.k_norm = &k_norm;
  }
  transform.layout = spec_.rope_layout;
  if (spec.rope) transform.angles = w.angles[*spec.rope].first(rows);
  const Rows attended = w.attended.first(rows);
  backend_.attend(q, k, v, transform, step, cache, spec_.encoder ? 0 : layer,
                  {.heads = spec_.heads,
                   .scale = spec_.attention_scale,
                   .softcap = spec_.attention_softcap,
                   .window = spec.window,
                   .sinks = weights.sinks,
                   .sees_all = spec_.encoder.has_value()},
                  attended);
  const Rows delta = w.delta.first(rows);
  backend_.linear(attended, *weights.o.matrix, weights.o.bias, delta);
  add_to_stream(delta, weights.post_attention_norm.weight, weights.post_attention_norm.bias);
}

void Decoder::feed_forward(uint32_t layer, size_t rows) {
  const LayerWeights& weights = weights_->layers[layer];
  Workspace& w = *workspace_;
  const NormParams norm = norm_params(weights.ffn_norm.weight, weights.ffn_norm.bias);
  const Rows normed = w.normed.first(rows), delta = w.delta.first(rows);
  if (spec_.layers[layer].experts) {
    // Router and experts take the same rows.
    add_pending_delta(rows);
    if (spec_.pre_ffn_norm) backend_.norm(w.stream.first(rows), norm, normed);
    const bool is_normed = spec_.pre_ffn_norm || spec_.parallel_residual;
    experts(weights, is_normed ? normed : w.stream.first(rows), delta);
  } else if (spec_.parallel_residual && !spec_.pre_ffn_norm) {
    add_pending_delta(rows);
    dense(weights, normed, delta);
  } else {
    dense(weights, stream_input(rows, spec_.pre_ffn_norm ? &norm : nullptr), delta);
  }
  add_to_stream(delta, weights.post_ffn_norm.weight, weights.post_ffn_norm.bias);
}

void Decoder::dense(const LayerWeights& weights, const LinearInput& in, Rows out) {
  const Rows gate_up = workspace_->gate_up.first(in.x.rows);
  backend_.linear(in, *weights.gate_up.matrix, weights.gate_up.bias, gate_up);
  LinearInput activated(gate_up);
  activated.activation = &spec_.activation;
  backend_.linear(activated, *weights.down.matrix, weights.down.bias, out);
}

void Decoder::experts(const LayerWeights& weights, Rows in, Rows out) {
  Workspace& w = *workspace_;
  const size_t routed = in.rows * spec_.experts->used;
  const Rows logits = w.router.first(in.rows);
  backend_.linear(in, *weights.router.matrix, weights.router.bias, logits);
  Routes& routes = *w.routes;
  backend_.route(logits, spec_.experts->router, routes);
  const Rows gate_up = w.expert_gate_up.first(routed);
  const Rows activated = w.expert_activated.first(routed);
  const Rows each = w.expert_out.first(routed);
  backend_.expert_linear(in, weights.expert_gate_up.matrices, weights.expert_gate_up.biases, routes,
                         gate_up);
  backend_.activate(gate_up, spec_.activation, activated);
  backend_.expert_linear(activated, weights.expert_down.matrices, weights.expert_down.biases,
                         routes, each);
  backend_.combine(each, routes, out);
}

}  // namespace skein
