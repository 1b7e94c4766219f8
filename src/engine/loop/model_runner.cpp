#include "engine/loop/model_runner.h"

#include <algorithm>
#include <atomic>
#include <limits>
#include <utility>

namespace skein {
namespace {

// A row that has a likeliest token, and no NaN or +inf.
bool is_sound(const Argmax& peak) {
  return peak.all_finite && peak.value != -std::numeric_limits<float>::infinity();
}

}  // namespace

ModelRunner::ModelRunner(std::shared_ptr<LoadedModel> model, std::unique_ptr<KvCache> cache,
                         ComputePool& pool, const Clock& clock, uint64_t form_work)
    : model_(std::move(model)),
      cache_(std::move(cache)),
      pool_(pool),
      clock_(clock),
      form_work_(form_work) {
  const DecoderLimits& limits = model_->decoder().limits();
  tokens_.reserve(limits.rows);
  sequences_.reserve(limits.rows);
  logit_rows_.reserve(limits.logit_rows);
  sampling_.reserve(limits.logit_rows);
  peaks_.reserve(limits.logit_rows);
  for (uint32_t i = 0; model_->spec().encoder && i < cache_->blocks(); ++i) {
    scratch_.emplace_back(i);
  }
  for (size_t i = 0; i < pool_.threads(); ++i) {
    scratches_.emplace_back(model_->backend().scan(), form_work_ - form_work_ / 2, &shared_work_);
  }
  auto queue = model_->backend().make_draw_queue(limits.logit_rows, model_->vocab(), kDepth);
  if (queue.ok()) queue_ = std::move(*queue);
  found_for_.reserve(limits.logit_rows);
  draws_.reserve(limits.logit_rows);
}

bool ModelRunner::takes_another() const {
  return started_.empty() || started_.back().queued;
}

void ModelRunner::start(std::span<const Segment> segments,
                        std::span<const RequestSampler* const> samplers) try {
  segments_ = segments;
  samplers_ = samplers;
  Started step{segments, samplers, {}, can_queue(), !started_.empty(), 0};
  if (step.queued) {
    queue();
    step.sampling = sampling_;
    step.at = clock_.now();
  }
  started_.push_back(std::move(step));
} catch (const BackendLost& lost) {
  throw RunnerLost(lost.what());
}

// Whether tokens that the device draws are all that the step is to give.
bool ModelRunner::can_queue() const {
  if (queue_ == nullptr) return false;
  for (size_t i = 0; i < segments_.size(); ++i) {
    const Segment& segment = segments_[i];
    if (segment.ends || segment.wants_every_row || segment.samples > 1) return false;
    if (segment.samples == 1 && !samplers_[i]->only_draws()) return false;
  }
  return true;
}

void ModelRunner::queue() {
  build();
  const std::lock_guard turn(model_->compute_mutex());
  const Rows rows = model_->decoder().forward(
      {tokens_, sequences_, logit_rows_, wants_hidden_, queue_.get()}, *cache_);
  found_for_.clear();
  draws_.clear();
  for (const auto& [segment, logit] : sampling_) {
    found_for_.push_back(segments_[segment].request);
    draws_.push_back(samplers_[segment]->draw_at(segments_[segment].known_end()));
  }
  queue_->find(rows.columns(0, model_->vocab()), draws_);
}

TimeUs ModelRunner::finish(const StepOutput& output) try {
  const Started step = std::move(started_.front());
  started_.pop_front();
  segments_ = step.segments;
  samplers_ = step.samplers;
  if (!step.queued) return compute(output);
  sampling_ = step.sampling;
  peaks_.resize(sampling_.size());
  const TimeUs waits_from = clock_.now();
  queue_->take(peaks_);
  const TimeUs now = clock_.now();
  waits_.thread_us += static_cast<uint64_t>(now - waits_from);
  if (step.follows) {
    ++waits_.pauses;
    waits_.pause_ns += queue_->pause_ns();
  }
  for (const auto& [segment, logit] : sampling_) {
    sample_segment(segment, logit, {}, scratches_[0], output);
  }
  return now - std::max(step.at, std::exchange(last_finish_, now));
} catch (const BackendLost& lost) {
  throw RunnerLost(lost.what());
}

TimeUs ModelRunner::compute(const StepOutput& output) {
  build();
  const std::lock_guard turn(model_->compute_mutex());
  const TimeUs started = clock_.now();
  const Rows rows = model_->decoder().forward(
      {tokens_, sequences_, logit_rows_, wants_hidden_, queue_.get()}, *cache_);
  const bool has_peaks = find_peaks(rows);
  HostRows logits;
  if (!has_peaks) logits = model_->backend().read(rows);
  const TimeUs ended = clock_.now();
  waits_.thread_us += static_cast<uint64_t>(ended - started);
  sample(logits, output);
  if (wants_hidden_) copy_hidden(output);
  return ended - started;
}

// Before the next pass over the model, which may be another's, overwrites them.
void ModelRunner::copy_hidden(const StepOutput& output) const {
  const HostRows rows = model_->backend().read(model_->decoder().hidden(tokens_.size()));
  for (size_t i = 0; i < segments_.size(); ++i) {
    const Segment& segment = segments_[i];
    if (!segment.ends && !segment.wants_every_row) continue;
    const size_t end = size_t{sequences_[i].first_row} + segment.count;
    SegmentDetails& details = output.details[i];
    for (size_t row = segment.wants_every_row ? end - segment.count : end - 1; row < end; ++row) {
      const std::span<const float> values = rows.row(row);
      details.hidden.insert(details.hidden.end(), values.begin(), values.end());
    }
    details.status = check_finite(details.hidden);
  }
}

void ModelRunner::build() {
  tokens_.clear();
  sequences_.clear();
  logit_rows_.clear();
  sampling_.clear();
  size_t scratch_used = 0;
  next_found_ = 0;
  wants_hidden_ = std::any_of(segments_.begin(), segments_.end(), [](const Segment& segment) {
    return segment.ends || segment.wants_every_row;
  });
  for (size_t i = 0; i < segments_.size(); ++i) {
    const Segment& segment = segments_[i];
    Sequence sequence;
    sequence.first_row = static_cast<uint32_t>(tokens_.size());
    sequence.rows = segment.count;
    sequence.start = segment.start;
    sequence.writes_kv = segment.writes_kv;
    sequence.blocks = segment.blocks;
    sequence.second_from = segment.second_from;
    if (!scratch_.empty()) {
      const size_t blocks = blocks_for(segment.count);
      SKEIN_CHECK(scratch_used + blocks <= scratch_.size(), "{} blocks beside {} of {}", blocks,
                  scratch_used, scratch_.size());
      sequence.blocks = std::span(scratch_).subspan(scratch_used, blocks);
      scratch_used += blocks;
    }
    sequences_.push_back(sequence);
    if (segment.token_from_previous) add_token_of_step_before(segment.request);
    tokens_.insert(tokens_.end(), segment.tokens.begin(), segment.tokens.end());
    tokens_.insert(tokens_.end(), segment.drafts.begin(), segment.drafts.end());
    if (segment.samples > 0) sampling_.push_back({i, logit_rows_.size()});
    for (uint32_t n = segment.samples; n > 0; --n) {
      logit_rows_.push_back(static_cast<uint32_t>(tokens_.size() - n));
    }
  }
}

// Requests of both steps come in the order of their admission.
void ModelRunner::add_token_of_step_before(RequestId request) {
  while (next_found_ < found_for_.size() && found_for_[next_found_] != request) ++next_found_;
  // Unless it was admitted again.
  if (next_found_ == found_for_.size()) {
    const auto it = std::find(found_for_.begin(), found_for_.end(), request);
    next_found_ = static_cast<size_t>(it - found_for_.begin());
  }
  SKEIN_CHECK(next_found_ < found_for_.size(),
              "request {}: a token is awaited that no step samples", request.value);
  tokens_.push_back(~static_cast<TokenId>(next_found_));
}

// Where nothing but the largest logits matters they are all that has to come from the backend.
// False: rows have to, too, because somebody looks at more of them or one is not sound.
bool ModelRunner::find_peaks(Rows rows) {
  peaks_.clear();
  if (rows.rows == 0) return false;
  for (const auto& [index, logit] : sampling_) {
    const Segment& segment = segments_[index];
    for (uint32_t n = 0; n < segment.samples; ++n) {
      if (!samplers_[index]->takes_peak(segment.known_end() + n, segment.drafts.first(n))) {
        return false;
      }
    }
  }
  peaks_.resize(rows.rows);
  const bool found = model_->backend().peaks(rows.columns(0, model_->vocab()), peaks_);
  const bool sound = std::all_of(peaks_.begin(), peaks_.end(), is_sound);
  if (!found || !sound) peaks_.clear();
  return found && sound;
}

void ModelRunner::sample(const HostRows& logits, const StepOutput& output) {
  shared_work_.begin(form_work_ / 2 * sampling_.size());
  // Rows take different times, those with forms above all.
  std::atomic<size_t> next = 0;
  pool_.run(scratches_.size(), [&](size_t thread) {
    for (size_t i = next++; i < sampling_.size(); i = next++) {
      const auto [segment, logit] = sampling_[i];
      sample_segment(segment, logit, logits, scratches_[thread], output);
    }
  });
}

void ModelRunner::put_off(const RequestSampler& sampler, std::span<const float> logits,
                          SegmentResult& result, SegmentDetails& details) const {
  result.outcome = SegmentOutcome::kPutOff;
  if (sampler.is_drawn_beside()) return;
  const std::span<const float> row = logits.first(model_->vocab());
  details.logits.assign(row.begin(), row.end());
}

// A token is sampled after each draft that came true.
void ModelRunner::sample_segment(size_t index, size_t logit, const HostRows& logits,
                                 SamplerScratch& scratch, const StepOutput& output) const {
  const Segment& segment = segments_[index];
  const RequestSampler& sampler = *samplers_[index];
  SegmentResult& result = output.results[index];
  SegmentDetails& details = output.details[index];
  for (uint32_t n = 0; n < segment.samples; ++n) {
    if (!peaks_.empty() && !is_sound(peaks_[logit + n])) {
      details.status = internal_error("a logit is not finite");
      return;
    }
    const Result<SampledToken> sampled =
        peaks_.empty() ? sampler.sample(logits.row(logit + n).first(model_->vocab()),
                                        segment.known_end() + n, scratch, segment.drafts.first(n))
                       : sampler.sample_found(static_cast<TokenId>(peaks_[logit + n].index));
    if (!sampled.ok()) {
      // What was drawn before stands, as it would without drafts; the next step fails for itself.
      if (n == 0) details.status = sampled.status();
      return;
    }
    if (sampled->put_off) {
      if (n == 0) put_off(sampler, logits.row(logit), result, details);
      return;
    }
    if (sampled->stop) {
      result.outcome = SegmentOutcome::kStop;
      return;
    }
    result.tokens.push_back(sampled->token);
    if (sampler.params().logprobs) details.sampled.push_back(*sampled);
    if (sampled->last) result.outcome = SegmentOutcome::kLast;
    if (sampled->last || (n < segment.drafts.size() && sampled->token != segment.drafts[n])) return;
  }
}

}  // namespace skein
