// TokenConstraint: the form that the answer of one request has to keep to, token by token.
//
// Not thread-safe: it is its request's alone, and whoever samples for that request uses it.
#pragma once

#include <span>

#include "base/ids.h"

namespace skein {

class TokenConstraint {
 public:
  virtual ~TokenConstraint() = default;

  // Makes -inf of the logits of all tokens that may not come after the accepted ones and `ahead`.
  virtual void mask(std::span<const TokenId> ahead, std::span<float> logits) const = 0;
  // Whether the answer is complete with the accepted tokens, `ahead` and then `token`.
  virtual bool is_last(std::span<const TokenId> ahead, TokenId token) const = 0;
  virtual void accept(TokenId token) = 0;
};

}  // namespace skein
