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

void BatchInferenceEngine::watch() {
  InferenceService::watch();
  refuse_questions(unavailable("the engine is busy with a step that takes long"),
                   clock_.now() - PendingExplanations::kPatienceUs);
}

namespace {

// Whoever asked waits for an answer, and nobody asks for it again: where memory is short, that is
// the answer.
template <class Answer, class Make>
Result<Answer> answer_of(const Make& make) {
  try {
    return Answer(make());
  } catch (const std::exception& error) {
    log_error("what is live could not be shown: {}", error.what());
    return unavailable("memory is short");
  }
}

template <class Asked, class Answer>
void tell(Asked& asked, Answer answer) {
  try {
    asked.done(std::move(answer));
  } catch (const std::exception& error) {
    log_error("who asked what is live could not be told: {}", error.what());
  }
}

}  // namespace

void BatchInferenceEngine::answer_questions() {
  for (PendingExplanations::Asked& asked : explanations_.take()) {
    tell(asked, answer_of<std::vector<Explanation>>([&] {
           std::vector<Explanation> explanations;
           explanations.reserve(asked.ids.size());
           scheduler_->explain(asked.ids, clock_.now(), explanations);
           for (Explanation& one : explanations) {
             one.form = live_.at(one.id)->sampler.form_use();
           }
           return explanations;
         }));
  }
  std::vector<PendingViews::Asked> views = views_.take();
  if (views.empty()) return;
  using View = std::shared_ptr<const SchedulerView>;
  const Result<View> view = answer_of<View>(
      [&] { return std::make_shared<const SchedulerView>(scheduler_->view(clock_.now())); });
  for (PendingViews::Asked& asked : views) tell(asked, view);
}

void BatchInferenceEngine::refuse_questions(const Status& why, TimeUs asked_before) {
  explanations_.refuse(why, asked_before);
  views_.refuse(why, asked_before);
}

}  // namespace skein
