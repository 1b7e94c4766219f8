// What others want to know of an engine: they ask, and its thread answers between two steps. Where
// nobody asks, that is two looks at empty lists.
#include <exception>
#include <utility>

#include "base/log.h"
#include "engine/loop/batch_inference_engine.h"

namespace skein {

void BatchInferenceEngine::explain(std::vector<RequestId> ids, Explained done) {
  explanations_.add({std::move(ids), std::move(done), clock_.now()});
  // After it was added: a loop that ends looks for the last time when the mailbox is closed.
  if (!mailbox_.closed()) return mailbox_.wake();
  refuse_questions(unavailable("the engine has stopped"));
}

void BatchInferenceEngine::view(Viewed done) {
  views_.add({{}, std::move(done), clock_.now()});
  if (!mailbox_.closed()) return mailbox_.wake();
  refuse_questions(unavailable("the engine has stopped"));
}

void BatchInferenceEngine::answer_questions() {
  for (PendingExplanations::Asked& asked : explanations_.take()) {
    try {
      std::vector<Explanation> explanations;
      explanations.reserve(asked.ids.size());
      scheduler_->explain(asked.ids, clock_.now(), explanations);
      asked.done(std::move(explanations));
    } catch (const std::exception& error) {
      log_error("{} requests could not be explained: {}", asked.ids.size(), error.what());
    }
  }
  std::vector<PendingViews::Asked> views = views_.take();
  if (views.empty()) return;
  try {
    const SchedulerView view = scheduler_->view(clock_.now());
    for (PendingViews::Asked& asked : views) asked.done(view);
  } catch (const std::exception& error) {
    log_error("what is live could not be shown: {}", error.what());
  }
}

void BatchInferenceEngine::refuse_questions(const Status& why, TimeUs asked_before) {
  explanations_.refuse(why, asked_before);
  views_.refuse(why, asked_before);
}

}  // namespace skein
