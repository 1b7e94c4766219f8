// SlowDraws: tokens that take longer to draw than a step can wait, for what their forms allow.
//
// They are drawn one after the other, tenants in turn, on a thread that gives way to those that
// compute, from the first one on. A request whose token is drawn here is in no step meanwhile. What
// has ended is not drawn for any more. add() and take_done() are for one thread.
#pragma once

#include <condition_variable>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <thread>
#include <vector>

#include "base/ids.h"
#include "engine/loop/tenant_turns.h"
#include "engine/sampling/sampler.h"

namespace skein {

struct EngineRequest;

class SlowDraws {
 public:
  // `wake` is called on its thread when there is something to take. Nothing is drawn without a
  // scratch.
  SlowDraws(std::optional<SamplerScratch> scratch, std::function<void()> wake)
      : scratch_(std::move(scratch)), wake_(std::move(wake)) {}
  ~SlowDraws() { stop(); }
  SlowDraws(const SlowDraws&) = delete;
  SlowDraws& operator=(const SlowDraws&) = delete;

  // False where there is no memory or no thread for it.
  bool add(RequestId id, const std::shared_ptr<EngineRequest>& request, uint32_t position,
           std::vector<float> logits) noexcept;
  // Requests whose tokens have been drawn, those that have ended among them.
  void take_done(std::vector<RequestId>& done);
  // Drops what waits, and waits for the one that is drawn.
  void stop();

 private:
  struct Draw {
    RequestId id;
    std::weak_ptr<EngineRequest> request;
    uint32_t position;
    std::vector<float> logits;
  };

  void queue(Draw draw, uint64_t tenant, RequestSampler& sampler);
  void serve();

  std::optional<SamplerScratch> scratch_;  // of its thread
  const std::function<void()> wake_;
  std::mutex mutex_;
  std::condition_variable added_;
  TenantTurns<Draw> waiting_;
  std::vector<RequestId> done_;
  bool stopping_ = false;
  std::thread thread_;
};

}  // namespace skein
