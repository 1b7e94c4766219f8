#include "engine/generation.h"

namespace skein {

Status check_request(GenerationRequest& request, const SchedulerConfig& config) {
  SKEIN_TRY(request.sampling.validate(config.vocab_size));
  RequestSpec spec;
  spec.priority = request.priority;
  spec.max_new_tokens = request.max_tokens;
  spec.prompt.swap(request.prompt);  // lent, not copied
  Status sound = ContinuousBatchingScheduler::check_spec(config, spec);
  spec.prompt.swap(request.prompt);
  return sound;
}

}  // namespace skein
