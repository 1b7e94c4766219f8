#include "engine/loop/inference_service.h"

#include <chrono>
#include <future>

namespace skein {
namespace {

// Longer than the service itself takes to give up.
constexpr auto kPatience = std::chrono::seconds(15);

}  // namespace

Result<Explanation> InferenceService::explain(RequestId id) {
  // Shared: the answer may come when nobody waits for it any more.
  const auto answer = std::make_shared<std::promise<Result<std::vector<Explanation>>>>();
  std::future<Result<std::vector<Explanation>>> future = answer->get_future();
  explain({id}, [answer](Result<std::vector<Explanation>> e) { answer->set_value(std::move(e)); });
  if (future.wait_for(kPatience) != std::future_status::ready) {
    return unavailable("the engine is busy with a step that takes long");
  }
  SKEIN_ASSIGN(const std::vector<Explanation> found, future.get());
  if (found.empty()) return not_found("request {} is not live", id.value);
  return found.front();
}

}  // namespace skein
