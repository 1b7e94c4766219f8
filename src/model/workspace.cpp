#include "model/workspace.h"

namespace skein {
namespace {

constexpr size_t kLineFloats = 16;  // 64 bytes, so that rows never share a cache line
constexpr size_t kPageFloats = 1024;

// From a row to the next. Where that is a multiple of 4 KB, all rows of a column compete for the
// same few places of a processor's first-level cache; two lines more leave the rows on lines of 128
// bytes. Devices read rows in another way.
constexpr size_t stride_of(size_t width, bool is_on_device) {
  const size_t stride = (width + kLineFloats - 1) / kLineFloats * kLineFloats;
  return stride % kPageFloats == 0 && !is_on_device ? stride + 2 * kLineFloats : stride;
}

// Cuts rows out of one stretch of memory; without memory it measures what is enough anywhere.
class Cutter {
 public:
  Cutter() = default;
  Cutter(Floats memory, bool is_on_device) : memory_(memory), is_on_device_(is_on_device) {}

  Rows rows(size_t count, size_t width) {
    const size_t stride = stride_of(width, is_on_device_);
    Rows out{memory_ ? memory_ + used_ : nullptr, count, width, stride};
    used_ += count * stride;
    return out;
  }
  size_t used() const { return used_; }

 private:
  Floats memory_;
  bool is_on_device_ = false;
  size_t used_ = 0;
};

void cut(Cutter& cutter, const ModelSpec& spec, const DecoderLimits& limits, Workspace& out) {
  const size_t rows = limits.rows;
  out.stream = cutter.rows(rows, spec.hidden);
  out.normed = cutter.rows(rows, spec.hidden);
  out.qkv = cutter.rows(rows, spec.qkv_width());
  out.attended = cutter.rows(rows, spec.q_width());
  out.delta = cutter.rows(rows, spec.hidden);
  if (spec.ffn > 0) {
    out.gate_up = cutter.rows(rows, spec.ffn_in_width(spec.ffn));
  }
  if (spec.experts) {
    const size_t routed = rows * spec.experts->used;
    out.router = cutter.rows(rows, spec.experts->count);
    out.expert_gate_up = cutter.rows(routed, spec.ffn_in_width(spec.experts->ffn));
    out.expert_activated = cutter.rows(routed, spec.experts->ffn);
    out.expert_out = cutter.rows(routed, spec.hidden);
  }
  out.angles.clear();
  for (const RopeSpec& rope : spec.ropes) {
    out.angles.push_back(cutter.rows(rows, 2 * rope.frequencies.size()));
  }
  if (spec.encoder) return;
  out.gathered = cutter.rows(limits.logit_rows, spec.hidden);
  out.logits = cutter.rows(limits.logit_rows, spec.vocab);
}

}  // namespace

uint64_t Workspace::bytes_for(const ModelSpec& spec, const DecoderLimits& limits) {
  Cutter measure;
  Workspace unused;
  cut(measure, spec, limits, unused);
  return measure.used() * sizeof(float);
}

Result<Workspace> Workspace::create(Backend& backend, const ModelSpec& spec,
                                    const DecoderLimits& limits) {
  Workspace out;
  SKEIN_ASSIGN(out.memory, backend.allocate(bytes_for(spec, limits)));
  Cutter cutter(out.memory.floats(), backend.device() != nullptr);
  cut(cutter, spec, limits, out);
  if (spec.experts) {
    SKEIN_ASSIGN(out.routes, backend.make_routes(limits.rows, spec.experts->used));
  }
  return out;
}

}  // namespace skein
