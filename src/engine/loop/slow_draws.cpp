#include "engine/loop/slow_draws.h"

#include <exception>
#include <utility>

#include "base/patience.h"
#include "base/resources.h"
#include "engine/loop/batch_inference_engine.h"

namespace skein {

bool SlowDraws::add(RequestId id, const std::shared_ptr<EngineRequest>& request, uint32_t position,
                    std::vector<float> logits) noexcept {
  if (!scratch_) return false;
  try {
    queue({id, request, position, std::move(logits)}, request->request.tenant, request->sampler);
  } catch (const std::exception&) {
    return false;
  }
  added_.notify_one();
  return true;
}

void SlowDraws::queue(Draw draw, uint64_t tenant, RequestSampler& sampler) {
  const std::lock_guard lock(mutex_);
  if (!thread_.joinable()) thread_ = std::thread([this] { serve(); });
  // Whoever comes and goes leaves nothing behind.
  waiting_.erase_if([](const Draw& one) { return one.request.expired(); });
  done_.reserve(done_.size() + waiting_.size() + 2);
  waiting_.push(tenant, std::move(draw));
  sampler.begin_beside();
}

void SlowDraws::serve() {
  const PatientScope patient;  // who waits for the token cannot be told
  give_way();
  std::unique_lock lock(mutex_);
  while (true) {
    added_.wait(lock, [this] { return stopping_ || !waiting_.empty(); });
    if (stopping_) return;
    const Draw draw = waiting_.pop();
    std::shared_ptr<EngineRequest> request = draw.request.lock();
    if (request == nullptr) continue;
    lock.unlock();
    request->sampler.draw_beside(draw.logits, draw.position, *scratch_);
    request.reset();  // where it was the last to know it, what it holds goes here
    lock.lock();
    done_.push_back(draw.id);
    wake_();
  }
}

void SlowDraws::take_done(std::vector<RequestId>& done) {
  const std::lock_guard lock(mutex_);
  done.assign(done_.begin(), done_.end());
  done_.clear();  // and keeps its room: nobody could be told that there is none
}

void SlowDraws::stop() {
  {
    const std::lock_guard lock(mutex_);
    stopping_ = true;
    waiting_.clear();
  }
  added_.notify_one();
  if (thread_.joinable()) thread_.join();
}

// The engine's side.

// What took too long for the step is drawn beside the next ones.
void BatchInferenceEngine::draw_put_off(StepUnderWay& step) {
  const std::span<const SegmentResult> results = std::as_const(step.result).segments();
  for (size_t i = 0; i < results.size(); ++i) {
    if (results[i].outcome != SegmentOutcome::kPutOff || step.live[i]->ended()) continue;
    std::vector<float>& logits = step.details[i].logits;
    if (logits.empty()) continue;  // it is being drawn, or was a moment ago
    ++counters_.put_off;
    const Segment& segment = step.plan.segments[i];
    const bool added =
        slow_draws_.add(segment.request, step.live[i], segment.known_end(), std::move(logits));
    if (!added) scheduler_->resume(segment.request);  // it may fare better in the next step
  }
}

void BatchInferenceEngine::resume_drawn() {
  slow_draws_.take_done(drawn_);
  for (const RequestId id : drawn_) scheduler_->resume(id);
}

}  // namespace skein
