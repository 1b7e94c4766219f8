// FormPlace: where the answer of one request stands in its form.
//
// A function of the form and the tokens so far, so a request that is preempted, run again or handed
// to another engine needs nothing but its tokens. A copy is a fork. For one thread at a time.
#pragma once

#include <memory>
#include <span>

#include "base/ids.h"
#include "engine/forms/form.h"

namespace skein {

class FormPlace {
 public:
  explicit FormPlace(std::shared_ptr<const Form> form)
      : form_(std::move(form)), matcher_(form_->grammar, form_->strips_leading_space) {}

  // Whether a token may come next. Without a mask, so that a likely one is cheap to ask for.
  bool allows(TokenId token) const { return matcher_.allows(token); }
  // All tokens that may come next, until the next advance(); nullptr where they take more work than
  // a mask may.
  const grammar::TokenMask* mask();
  // False: it may not come next, and nothing has changed.
  bool advance(TokenId token) { return matcher_.advance(token); }
  bool may_end() const { return matcher_.may_end(); }
  // Nothing but the end can follow.
  bool must_end() const { return matcher_.must_end(); }
  // The form took more work than one may: it says nothing any more.
  bool failed() const { return matcher_.failed(); }

 private:
  std::shared_ptr<const Form> form_;
  grammar::Matcher matcher_;
};

}  // namespace skein
