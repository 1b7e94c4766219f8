// What an answer says of itself while it is live.
#include <algorithm>
#include <utility>

#include "server/answer/answer_job.h"

namespace skein {

void AnswerJob::explain(std::function<void(RequestExplanation)> done) {
  RequestExplanation explanation;
  explanation.id = identity_.id;
  explanation.model = identity_.model;
  explanation.seed = seed_;
  std::vector<RequestId> ids;
  std::shared_ptr<ServedModel> served;
  {
    const std::lock_guard lock(mutex_);
    if (lease_) served = (*lease_)->shared_from_this();
    if (form_of_answer_) explanation.relaxed = form_of_answer_->relaxed;
    explanation.has_form = form_of_answer_ != nullptr;
    for (const Choice& choice : choices_) ids.push_back(choice.completion->id());
  }
  explanation.state = served && !ids.empty() ? "live" : "loading";
  if (!served || ids.empty()) return done(std::move(explanation));
  // One message for all choices, and the engine's thread only passes on what it said.
  served->explain(ids, [self = shared_from_this(), ids, explanation = std::move(explanation),
                        done = std::move(done)](Result<std::vector<Explanation>> found) mutable {
    if (!found.ok()) explanation.error = api::from_status(found.status());
    const auto tell = [ids = std::move(ids), explanation = std::move(explanation), done,
                       found = std::move(found)]() mutable {
      // One that has ended meanwhile has nothing to explain.
      for (size_t i = 0; found.ok() && i < found->size(); ++i) {
        const auto at = std::find(ids.begin(), ids.end(), (*found)[i].id);
        explanation.choices.push_back({static_cast<uint32_t>(at - ids.begin()), (*found)[i]});
      }
      done(std::move(explanation));
    };
    const auto refuse = [self, done] {
      RequestExplanation refused;
      refused.error = self->context_.no_worker();
      done(std::move(refused));
    };
    if (!self->context_.workers.post(self->call_.priority, tell, refuse)) refuse();
  });
}

}  // namespace skein
