// The JSON that people who watch a server are shown: frames of /v1/live, and the list of
// /v1/requests.
//
// Whoever has no admin right sees its own requests and the totals of all. Nothing in it is text of
// a prompt or an answer.
#pragma once

#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "base/time.h"
#include "engine/manager/scheduler_manager.h"
#include "server/auth/principal.h"

namespace skein {

struct ServerContext;

struct LiveModel {
  ModelStatus status;
  std::shared_ptr<const SchedulerView> view;  // null: its engine has not said anything yet
};

struct LivePicture {
  TimeUs now = 0;
  std::vector<LiveModel> models;
};

std::string_view name_of(ModelState state);
// Says what a request is doing, as members of JSON, each with a comma before it.
void append_explanation(std::string& out, const Explanation& explanation);

// One frame, without a newline.
std::string live_text(const ServerContext& context, const LivePicture& picture,
                      const Principal& who);

// The requests that are live, and the latest `recent` of those that have ended.
std::string requests_text(const ServerContext& context, const LivePicture& picture,
                          const Principal& who, size_t recent);

}  // namespace skein
