#include "model/tensors.h"

#include <fmt/format.h>
#include <string>
#include <utility>

#include "format/quote.h"
#include "tensor/dequantize.h"

namespace skein {
namespace {

constexpr uint32_t kMxBlock = 32;  // elements that share a scale

bool is_plain_float(ElementType type) {
  return type == ElementType::kF32 || type == ElementType::kF16 || type == ElementType::kBF16;
}

TensorView part_of(const TensorView& stacked, uint64_t index) {
  const uint64_t bytes = stacked.bytes.size() / stacked.shape[0];
  return {stacked.type,
          {stacked.shape[1], stacked.shape[2]},
          stacked.bytes.subspan(index * bytes, bytes)};
}

Result<WeightView> part_of(const WeightView& stacked, uint64_t index) {
  if (const auto* plain = std::get_if<TensorView>(&stacked)) {
    return WeightView(part_of(*plain, index));
  }
  const auto& affine = std::get<AffineView>(stacked);
  SKEIN_ASSIGN(const AffineView part,
               AffineView::of(part_of(affine.packed(), index), part_of(affine.scales(), index),
                              part_of(affine.biases(), index), affine.format()));
  return WeightView(part);
}

// Takes tensors out of a source, once each, and knows in the end what was left.
class Resolver {
 public:
  Resolver(const WeightSource& source, const ModelDescription& description)
      : source_(source), names_(description.names), spec_(description.spec) {
    taken_.resize(source.tensors().size());
  }

  Result<ModelTensors> resolve();

 private:
  Result<TensorView> take(const std::string& name, const Shape& shape);
  Result<TensorView> take_floats(const std::string& name, const Shape& shape);
  Result<WeightView> take_matrix(const std::string& module, const Shape& shape);
  bool mark(std::string_view name);  // false: there is none

  Result<LinearTensors> linear(const LinearNames& names, uint32_t layer,
                               std::span<const uint64_t> outputs, uint64_t inputs);
  Result<NormTensors> norm(const std::string& name, uint32_t layer, uint64_t width);
  Result<NormTensors> qk_norm(const std::string& name, uint32_t layer, uint32_t heads);
  Status attention(uint32_t index, LayerTensors& layer);
  Status dense(uint32_t index, LayerTensors& layer);
  Status experts(uint32_t index, LayerTensors& layer);
  Result<ExpertTensors> projection(std::span<const std::string> modules, uint32_t layer,
                                   uint64_t outputs, uint64_t inputs);
  Status repacked(const std::string& name, uint64_t outputs, uint64_t inputs, ExpertTensors& out);
  Status ends(ModelTensors& out);
  Status check_left_overs() const;

  const WeightSource& source_;
  const TensorNames& names_;
  const ModelSpec& spec_;
  std::vector<bool> taken_;
};

bool Resolver::mark(std::string_view name) {
  const NamedTensor* tensor = source_.find(name);
  if (tensor == nullptr) return false;
  taken_[static_cast<size_t>(tensor - source_.tensors().data())] = true;
  return true;
}

Result<TensorView> Resolver::take(const std::string& name, const Shape& shape) {
  SKEIN_ASSIGN(const TensorView view, source_.get(name));
  if (view.shape != shape) {
    return invalid_argument("{}: tensor {} is {}, the config asks for {}", source_.path(),
                            in_quotes(name), view.shape.to_string(), shape.to_string());
  }
  mark(name);
  return view;
}

Result<TensorView> Resolver::take_floats(const std::string& name, const Shape& shape) {
  SKEIN_ASSIGN(const TensorView view, take(name, shape));
  if (is_plain_float(view.type)) return view;
  return invalid_argument("{}: tensor {} is {}, it must be F32, F16 or BF16", source_.path(),
                          in_quotes(name), info(view.type).name);
}

Result<WeightView> Resolver::take_matrix(const std::string& module, const Shape& shape) {
  const std::string name = module + ".weight";
  SKEIN_ASSIGN(const std::optional<AffineView> affine, source_.affine(module));
  if (affine) {
    if (affine->shape() != shape) {
      return invalid_argument("{}: tensor {} is {}, the config asks for {}", source_.path(),
                              in_quotes(name), affine->shape().to_string(), shape.to_string());
    }
    for (const char* part : {".weight", ".scales", ".biases"}) mark(module + part);
    return WeightView(*affine);
  }
  SKEIN_ASSIGN(const TensorView view, take(name, shape));
  if (can_dequantize(view.type)) return WeightView(view);
  return unimplemented("{}: tensor {} is {}, which is no type of weights", source_.path(),
                       in_quotes(name), info(view.type).name);
}

// `outputs` has one number per part; a file that has one module for all parts has their sum.
Result<LinearTensors> Resolver::linear(const LinearNames& names, uint32_t layer,
                                       std::span<const uint64_t> outputs, uint64_t inputs) {
  LinearTensors out;
  const bool fused = names.modules.size() == 1;
  SKEIN_CHECK(fused || names.modules.size() == outputs.size(), "{} modules for {} parts",
              names.modules.size(), outputs.size());
  uint64_t total = 0;
  for (const uint64_t count : outputs) total += count;
  for (size_t i = 0; i < names.modules.size(); ++i) {
    const std::string module = expand(names.modules[i], layer);
    const uint64_t rows = fused ? total : outputs[i];
    SKEIN_ASSIGN(const WeightView weight, take_matrix(module, {rows, inputs}));
    out.parts.push_back(weight);
    const std::string bias_name = module + ".bias";
    const bool wanted = names.bias == Bias::kRequired ||
                        (names.bias == Bias::kIfThere &&
                         source_.find(expand(names.modules[0], layer) + ".bias") != nullptr);
    if (!wanted) continue;
    SKEIN_ASSIGN(const TensorView bias, take_floats(bias_name, {rows}));
    out.biases.push_back(bias);
  }
  return out;
}

Result<NormTensors> Resolver::norm(const std::string& name, uint32_t layer, uint64_t width) {
  NormTensors out;
  const std::string module = expand(name, layer);
  SKEIN_ASSIGN(const TensorView weight, take_floats(module + ".weight", {width}));
  out.weight = {weight};
  if (spec_.norm == NormKind::kLayer) {
    SKEIN_ASSIGN(out.bias, take_floats(module + ".bias", {width}));
  }
  return out;
}

Result<NormTensors> Resolver::qk_norm(const std::string& name, uint32_t layer, uint32_t heads) {
  NormTensors out;
  const bool per_tensor = name.find("{E}") != std::string::npos;
  const uint64_t width = spec_.head_dim;
  const Shape shape = per_tensor || spec_.qk_norm == QkNorm::kPerHead ? Shape{width}
                      : spec_.qk_norm == QkNorm::kFullWidth           ? Shape{heads * width}
                                                                      : Shape{heads, width};
  for (uint32_t head = 0; head < (per_tensor ? heads : 1); ++head) {
    SKEIN_ASSIGN(const TensorView weight,
                 take_floats(expand(name, layer, head) + ".weight", shape));
    out.weight.push_back(weight);
  }
  return out;
}

Status Resolver::attention(uint32_t index, LayerTensors& layer) {
  if (spec_.pre_attention_norm) {
    SKEIN_ASSIGN(layer.attention_norm, norm(names_.attention_norm, index, spec_.hidden));
  }
  if (spec_.post_attention_norm) {
    SKEIN_ASSIGN(layer.post_attention_norm, norm(names_.post_attention_norm, index, spec_.hidden));
  }
  const uint64_t qkv[] = {spec_.q_width(), spec_.kv_width(), spec_.kv_width()};
  SKEIN_ASSIGN(layer.qkv, linear(names_.qkv, index, qkv, spec_.hidden));
  const uint64_t out[] = {spec_.hidden};
  SKEIN_ASSIGN(layer.o, linear(names_.o, index, out, spec_.q_width()));
  if (spec_.qk_norm != QkNorm::kNone) {
    SKEIN_ASSIGN(layer.q_norm, qk_norm(names_.q_norm, index, spec_.heads));
    SKEIN_ASSIGN(layer.k_norm, qk_norm(names_.k_norm, index, spec_.kv_heads));
  }
  if (spec_.attention_sinks) {
    SKEIN_ASSIGN(layer.sinks, take_floats(expand(names_.sinks, index), {spec_.heads}));
  }
  return ok_status();
}

Status Resolver::dense(uint32_t index, LayerTensors& layer) {
  const uint64_t gate_up[] = {spec_.ffn, spec_.ffn};
  const std::span<const uint64_t> outputs(gate_up, spec_.activation.gated() ? 2 : 1);
  SKEIN_ASSIGN(layer.gate_up, linear(names_.gate_up, index, outputs, spec_.hidden));
  const uint64_t out[] = {spec_.hidden};
  SKEIN_ASSIGN(layer.down, linear(names_.down, index, out, spec_.ffn));
  return ok_status();
}

Status Resolver::experts(uint32_t index, LayerTensors& layer) {
  const ExpertSpec& experts = *spec_.experts;
  const uint64_t count[] = {experts.count};
  SKEIN_ASSIGN(layer.router, linear(names_.router, index, count, spec_.hidden));
  SKEIN_ASSIGN(layer.expert_gate_up,
               projection(names_.experts.gate_up, index, experts.ffn, spec_.hidden));
  SKEIN_ASSIGN(layer.expert_down,
               projection({&names_.experts.down, 1}, index, spec_.hidden, experts.ffn));
  return ok_status();
}

// `outputs` of each module.
Result<ExpertTensors> Resolver::projection(std::span<const std::string> modules, uint32_t layer,
                                           uint64_t outputs, uint64_t inputs) {
  ExpertTensors out;
  out.packing = names_.experts.packing;
  const uint64_t count = spec_.experts->count;
  if (out.packing == ExpertPacking::kTransposed || out.packing == ExpertPacking::kMxfp4) {
    const bool is_gate_up = modules.data() == names_.experts.gate_up.data();
    const uint64_t rows = is_gate_up ? 2 * outputs : outputs;
    SKEIN_TRY(repacked(expand(modules[0], layer), rows, inputs, out));
    return out;
  }
  out.experts.resize(count);
  for (const std::string& module : modules) {
    if (out.packing == ExpertPacking::kSeparate) {
      for (uint32_t e = 0; e < count; ++e) {
        SKEIN_ASSIGN(const WeightView weight,
                     take_matrix(expand(module, layer, e), {outputs, inputs}));
        out.experts[e].push_back(weight);
      }
      continue;
    }
    const std::string name = expand(module, layer);
    SKEIN_ASSIGN(const WeightView all, take_matrix(name, {count, outputs, inputs}));
    for (uint32_t e = 0; e < count; ++e) {
      SKEIN_ASSIGN(const WeightView part, part_of(all, e));
      out.experts[e].push_back(part);
    }
    if (!names_.experts.biases) continue;
    SKEIN_ASSIGN(const TensorView bias, take_floats(name + ".bias", {count, outputs}));
    out.biases.push_back(bias);
  }
  return out;
}

Status Resolver::repacked(const std::string& name, uint64_t outputs, uint64_t inputs,
                          ExpertTensors& out) {
  const uint64_t count = spec_.experts->count;
  if (out.packing == ExpertPacking::kTransposed) {
    SKEIN_ASSIGN(out.values, take_floats(name, {count, inputs, outputs}));
  } else {
    if (inputs % kMxBlock != 0) {
      return invalid_argument("{}: tensor {} has rows of {}, MXFP4 needs a multiple of {}",
                              source_.path(), in_quotes(name + "_blocks"), inputs, kMxBlock);
    }
    const uint64_t blocks = inputs / kMxBlock;
    SKEIN_ASSIGN(out.values, take(name + "_blocks", {count, outputs, blocks, kMxBlock / 2}));
    SKEIN_ASSIGN(out.scales, take(name + "_scales", {count, outputs, blocks}));
    if (out.values.type != ElementType::kU8 || out.scales.type != ElementType::kU8) {
      return invalid_argument("{}: tensors {}_blocks and _scales are {} and {}, they must be U8",
                              source_.path(), name, info(out.values.type).name,
                              info(out.scales.type).name);
    }
  }
  if (names_.experts.biases) {
    SKEIN_ASSIGN(const TensorView bias, take_floats(name + "_bias", {count, outputs}));
    out.biases.push_back(bias);
  }
  return ok_status();
}

Status Resolver::check_left_overs() const {
  for (size_t i = 0; i < taken_.size(); ++i) {
    const std::string& name = source_.tensors()[i].name;
    if (taken_[i] || may_be_ignored(name)) continue;
    return invalid_argument("{}: tensor {} {} has no place in a model of family {} like this one",
                            source_.path(), in_quotes(name),
                            source_.tensors()[i].view.shape.to_string(), spec_.family);
  }
  return ok_status();
}

// What stands before the layers and after them.
Status Resolver::ends(ModelTensors& out) {
  SKEIN_ASSIGN(const WeightView embedding,
               take_matrix(names_.embedding, {spec_.vocab, spec_.hidden}));
  out.embedding.parts.push_back(embedding);
  if (spec_.encoder) {
    SKEIN_ASSIGN(const WeightView positions,
                 take_matrix(names_.positions, {spec_.context, spec_.hidden}));
    SKEIN_ASSIGN(const WeightView types,
                 take_matrix(names_.types, {spec_.encoder->types, spec_.hidden}));
    out.positions.parts.push_back(positions);
    out.types.parts.push_back(types);
    SKEIN_ASSIGN(out.embedding_norm, norm(names_.embedding_norm, 0, spec_.hidden));
    return ok_status();
  }
  if (!spec_.tied_head) {
    SKEIN_ASSIGN(const WeightView head, take_matrix(names_.head, {spec_.vocab, spec_.hidden}));
    out.head.parts.push_back(head);
  }
  SKEIN_ASSIGN(out.final_norm, norm(names_.final_norm, 0, spec_.hidden));
  return ok_status();
}

Result<ModelTensors> Resolver::resolve() {
  ModelTensors out;
  SKEIN_TRY(ends(out));
  out.layers.resize(spec_.layers.size());
  for (uint32_t i = 0; i < out.layers.size(); ++i) {
    LayerTensors& layer = out.layers[i];
    SKEIN_TRY(attention(i, layer));
    if (spec_.pre_ffn_norm) {
      SKEIN_ASSIGN(layer.ffn_norm, norm(names_.ffn_norm, i, spec_.hidden));
    }
    if (spec_.post_ffn_norm) {
      SKEIN_ASSIGN(layer.post_ffn_norm, norm(names_.post_ffn_norm, i, spec_.hidden));
    }
    SKEIN_TRY(spec_.layers[i].experts ? experts(i, layer) : dense(i, layer));
  }
  for (const std::string& name : names_.others) mark(name);
  SKEIN_TRY(check_left_overs());
  return out;
}

}  // namespace

Result<ModelTensors> resolve_tensors(const WeightSource& source,
                                     const ModelDescription& description) {
  return Resolver(source, description).resolve();
}

}  // namespace skein
