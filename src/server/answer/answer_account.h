// AnswerAccount: what one answer costs, and everyone who is told: the limits and the usage of its
// key, the metrics and the request log.
//
//   enter, set_text, reserve, begin_choice*, add_tokens*, end_choice*, settle, log
//
// Whatever way the answer ends, settle() and then log() come exactly once; what was reserved and
// not used goes back to the key with it. For one thread at a time.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <vector>

#include "base/clock.h"
#include "engine/loop/generation.h"
#include "generate/events.h"
#include "server/api/answer_writer.h"
#include "server/api/errors.h"
#include "server/auth/rate_limiter.h"
#include "server/observe/finished_request.h"
#include "server/observe/metrics.h"
#include "server/observe/recent_requests.h"
#include "server/store/usage_meter.h"

namespace skein {

// Tells a key that its minute is used up, and when to come again.
api::Error rate_limit_error(const Admission& admission);

class AnswerAccount {
 public:
  // Who is told. All of it outlives the account.
  struct Books {
    const Clock& clock;
    RateLimiter& limiter;
    Metrics& metrics;
    UsageMeter& usage;
    const std::function<void(const FinishedRequest&)>& log;  // may be empty
    RecentRequests& recent;
  };

  // `about`: what is known of the answer from the start.
  AnswerAccount(Books books, std::shared_ptr<const Principal> who, FinishedRequest about);

  // The answer cannot be given, for a reason that is counted.
  void reject(Rejection why);

  // Takes the request from the key's minute, and a token of it: before anything is made of its
  // text, for that is work whatever becomes of it. So the request is not given back where reserve()
  // then finds too few tokens; the token is.
  std::optional<api::Error> enter();
  // The tokens that were made of its text. A request that is refused for what it says costs so
  // many.
  void set_text(uint64_t tokens) { text_tokens_ = tokens; }

  // Takes from the key's minute what the prompts and `choices` answers may need. Without
  // `max_tokens` that is all it has left, and answer_tokens() is each choice's share of it.
  std::optional<api::Error> reserve(uint64_t prompt_tokens, uint64_t choices,
                                    std::optional<uint32_t> max_tokens);
  std::optional<uint32_t> answer_tokens() const { return answer_tokens_; }

  void set_model(std::string model) { about_.model = std::move(model); }
  void begin_choice() { ++about_.choices; }
  // `tokens` of the choice's prompt were found computed; the latest call counts.
  void set_cached(uint32_t choice, uint64_t tokens);
  void add_tokens(uint32_t choice, uint64_t tokens);
  void add_reasoning_tokens(uint64_t tokens) { usage_.reasoning_tokens += tokens; }  // of those
  void add_call(std::string_view format) { books_.metrics.on_tool_call(about_.model, format); }
  // `counts_prompt`: of the choices of one prompt, one.
  void end_choice(uint32_t choice, const GenerationEnd& end, bool counts_prompt);

  const Usage& usage() const { return usage_; }
  api::Timings timings() const;  // of the first choice

  // Before the client has its answer, so that whoever has one finds it in every count. Only the
  // first call counts.
  void settle(FinishReason reason);
  void log(int status);

 private:
  const Books books_;
  const std::shared_ptr<const Principal> who_;
  const TimeUs arrived_us_;
  FinishedRequest about_;
  Usage usage_;
  std::vector<uint64_t> cached_;  // by choice; usage_ has the sum
  uint64_t reserved_tokens_ = 0;
  uint64_t text_tokens_ = 0;  // until they are reserved, or cannot be
  std::optional<uint32_t> answer_tokens_;
  TimeUs first_token_us_ = 0;  // 0: none came
  TimeUs last_tokens_us_ = 0;
  uint64_t first_choice_tokens_ = 0;
  std::optional<GenerationEnd> first_choice_end_;
  bool is_settled_ = false;
};

}  // namespace skein
