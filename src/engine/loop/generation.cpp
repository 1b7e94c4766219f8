#include "engine/loop/generation.h"

#include <new>

namespace skein {

Status check_request(GenerationRequest& request, const SchedulerConfig& config) {
  SKEIN_TRY(request.sampling.validate(config.vocab_size));
  RequestSpec spec;
  spec.priority = request.priority;
  spec.max_new_tokens = request.max_tokens;
  spec.ends_when_computed = request.wants_hidden;
  spec.prompt.swap(request.prompt);  // lent, not copied
  Status sound = ContinuousBatchingScheduler::check_spec(config, spec);
  spec.prompt.swap(request.prompt);
  return sound;
}

Status enter_queue(QueueDoor& door, const GenerationRequest& request, TimeUs now) try {
  const DoorAnswer answer = door.enter(
      {request.tenant, request.priority, request.sibling, request.siblings, request.background},
      now);
  switch (answer.kind) {
    case DoorAnswer::Kind::kEntered:
      break;
    case DoorAnswer::Kind::kQueueFull:
      return resource_exhausted("{} requests would wait; the queue holds {} of this class",
                                answer.wanted, answer.places);
    case DoorAnswer::Kind::kShareFull:
      return resource_exhausted(
          "{} requests of this key would wait; its share of the queue is {} now", answer.wanted,
          answer.places);
  }
  return {};
} catch (const std::bad_alloc&) {
  return {Code::kResourceExhausted, "out of memory"};
}

}  // namespace skein
