// Finds in the store what a request of /v1/responses continues.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "server/api/errors.h"
#include "server/context.h"

namespace skein {

struct Recalled {
  std::vector<ConversationTurn> turns;  // the oldest first
  std::shared_ptr<void> memory;         // of the account, for what is made of them

  // Inputs and outputs, as ResponsesTerms::before has them.
  std::vector<std::string> lists() &&;
};

// The conversation that a response ends. `account`: who pays for its memory. `field`: of the
// request that names the response, for errors; empty: its path does. `done` is called on the
// store's thread.
void recall(ServerContext& context, const std::string& id, const Scope& scope,
            const std::string& account, const std::string& field,
            std::function<void(api::Parsed<Recalled>)> done);

// Likewise, of each response by itself, those that are not there left out: for items that an input
// names.
void recall_each(ServerContext& context, std::vector<std::string> ids, const Scope& scope,
                 const std::string& account, std::function<void(api::Parsed<Recalled>)> done);

inline constexpr const char* kPreviousResponse = "previous_response_id";

// Whether the server keeps responses at all.
bool keeps_responses(const ServerContext& context);

}  // namespace skein
