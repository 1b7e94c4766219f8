// FormPlace: where the answer of one request stands in its form.
//
// A function of the form and the tokens so far, so a request that is preempted, run again or handed
// to another engine needs nothing but its tokens. A copy is a fork. For one thread at a time.
#pragma once

#include <memory>
#include <optional>

#include "base/ids.h"
#include "engine/forms/form.h"

namespace skein {

class FormPlace {
 public:
  // `thought_budget`: after so many tokens of thoughts the one that is open is ended. Only with a
  // form that has thoughts.
  explicit FormPlace(std::shared_ptr<const Form> form, std::optional<uint32_t> thought_budget = {})
      : form_(std::move(form)),
        matcher_(form_->grammar, form_->strips_leading_space),
        limits_thought_(thought_budget && form_->thought),
        thought_left_(thought_budget.value_or(0)),
        in_thought_(limits_thought_ && form_->thought->open) {}

  grammar::CompiledGrammar& grammar() const { return *form_->grammar; }
  // The token that must come next, whatever the model would say; kNoToken: it has a say.
  TokenId forced() const;
  // Whether a token may come next. Without a mask, so that a likely one is cheap to ask for.
  bool allows(TokenId token) const { return matcher_.allows(token); }
  // All tokens that may come next, until the next advance(); nullptr where they take more work than
  // a mask may.
  const grammar::TokenMask* mask(uint64_t& took_ns);
  const grammar::TokenMask* mask() {
    uint64_t took_ns = 0;
    return mask(took_ns);
  }
  // False: it may not come next, and nothing has changed.
  bool advance(TokenId token);
  bool may_end() const { return matcher_.may_end(); }
  // Nothing but the end can follow.
  bool must_end() const { return matcher_.must_end(); }
  // The form took more work than one may: it says nothing any more.
  bool failed() const { return matcher_.failed(); }

 private:
  bool has_just_come(TokenId token, TokenId marker, const std::string& text) const;
  void count_thought(TokenId token);

  std::shared_ptr<const Form> form_;
  grammar::Matcher matcher_;
  bool limits_thought_;
  uint32_t thought_left_;  // tokens that thoughts may still have
  bool in_thought_;
  uint32_t ended_ids_ = 0;  // of the end that is being written
};

}  // namespace skein
