// What an answer says of itself while it is live.
#include <utility>

#include "server/answer/answer_job.h"
#include "server/answer/job_parts.h"

namespace skein {

void AnswerJob::explain(std::function<void(RequestExplanation)> done) {
  RequestExplanation explanation;
  explanation.id = identity_.id;
  explanation.model = identity_.model;
  explanation.seed = seed_;
  std::vector<LiveChoice> choices;
  std::shared_ptr<ServedModel> served;
  {
    const std::lock_guard lock(mutex_);
    if (lease_) served = (*lease_)->shared_from_this();
    if (shape_.form) explanation.relaxed = shape_.form->relaxed;
    explanation.has_form = shape_.form != nullptr;
    explanation.call_format = shape_.call_format;
    for (const Choice& choice : choices_) {
      choices.push_back({choice.index, choice.completion->id()});
    }
  }
  explanation.state = served && !choices.empty() ? "live" : "loading";
  if (!served || choices.empty()) return done(std::move(explanation));
  explain_choices(context_, call_.priority, *served, std::move(choices), std::move(explanation),
                  std::move(done));
}

}  // namespace skein
