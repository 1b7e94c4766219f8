// LiveRequests: the requests being answered, by the id that clients know.
#pragma once

#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "base/ids.h"
#include "base/time.h"
#include "engine/sampling/sampling_params.h"
#include "sched/types.h"
#include "server/api/errors.h"

namespace skein {

// One engine request of an answer, as explain() shows it.
struct ChoiceExplanation {
  uint32_t index = 0;
  Explanation explanation;
};

struct RequestExplanation {
  std::string id;
  std::string model;
  std::string state;                       // "loading" before the model is there, then "live"
  uint64_t seed = 0;                       // as given or drawn
  std::optional<api::Error> error;         // nobody could say what the choices are doing
  std::optional<SamplingParams> sampling;  // once the model is there
  bool has_form = false;
  std::string call_format;           // how its calls are written; empty: none may come
  std::vector<std::string> relaxed;  // JSON pointers of what its form does not enforce
  std::vector<ChoiceExplanation> choices;
};

// All that can be said of an answer without asking an engine.
struct RequestBrief {
  std::string id;
  std::string owner;  // the id of its key; empty: anonymous
  std::string key_name;
  std::string model;
  std::string route;
  Priority priority = Priority::NORMAL;
  bool is_background = false;  // a line of a batch
  TimeUs arrived = 0;
  struct Choice {
    uint32_t index = 0;
    RequestId id;  // the engine's
  };
  std::vector<Choice> choices;  // empty while the model loads, and while the prompt is made
};

// An answer, as LiveRequests knows it. Any thread may call it.
class LiveRequest {
 public:
  virtual ~LiveRequest() = default;
  // `done` is called once: at once while the model loads, else on a worker, or by the engine where
  // no worker is free. It must be quick.
  virtual void explain(std::function<void(RequestExplanation)> done) = 0;
  virtual RequestBrief brief() const = 0;
  virtual void cancel() = 0;
};

class LiveRequests {
 public:
  void add(const std::string& id, std::string owner, std::weak_ptr<LiveRequest> request);
  void remove(const std::string& id);
  // nullptr when there is none, or when it is another tenant's and the caller is no admin.
  std::shared_ptr<LiveRequest> find(const std::string& id, std::string_view owner,
                                    bool admin) const;
  // Those that `owner` may see, but no more than that many.
  std::vector<RequestBrief> briefs(std::string_view owner, bool admin, size_t limit) const;
  size_t size() const;

 private:
  struct Entry {
    std::string owner;
    std::weak_ptr<LiveRequest> request;
  };
  mutable std::mutex mutex_;
  std::unordered_map<std::string, Entry> entries_;
};

}  // namespace skein
