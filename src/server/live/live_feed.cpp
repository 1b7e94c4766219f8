#include "server/live/live_feed.h"

#include <algorithm>
#include <exception>
#include <fmt/format.h>
#include <iterator>
#include <pthread.h>
#include <system_error>
#include <utility>

#include "base/log.h"
#include "server/context.h"

namespace skein {
namespace {

constexpr std::string_view kGaveWay = "event: error\ndata: {\"code\":\"too_many_watchers\"}\n\n";

}  // namespace

Status LiveFeed::watch(const ServerContext& context, std::string credential, std::string owner,
                       http::Responder responder) {
  const std::lock_guard lock(mutex_);
  if (closed_) return unavailable("the server is stopping");
  const auto own = std::count_if(watchers_.begin(), watchers_.end(),
                                 [&](const Watcher& w) { return w.owner == owner; });
  if (watchers_.size() >= kMaxWatchers && !make_room(static_cast<size_t>(own))) {
    return resource_exhausted("{} watch already, of {} that may", watchers_.size(), kMaxWatchers);
  }
  if (static_cast<size_t>(own) >= kMaxOfOwner) {
    return resource_exhausted("{} watch with this key already, of {} that may", own, kMaxOfOwner);
  }
  if (context_ == nullptr) context_ = &context;
  if (!thread_.joinable()) {
    try {
      thread_ = std::thread([this] { serve(); });
    } catch (const std::system_error& error) {
      return unavailable("no thread for the feed: {}", error.what());
    }
  }
  responder.start({.headers = {{"Cache-Control", "no-store"}}, .is_endless = true});
  watchers_.push_back({std::move(credential), std::move(owner), std::move(responder)});
  changed_.notify_all();
  return {};
}

// The latest watcher of the key that has the most gives way to one whose key would still have
// fewer: a few keys do not keep all others out.
bool LiveFeed::make_room(size_t own) {
  std::map<std::string_view, size_t> counts;
  for (const Watcher& watcher : watchers_) ++counts[watcher.owner];
  const auto most =
      std::max_element(counts.begin(), counts.end(),
                       [](const auto& a, const auto& b) { return a.second < b.second; });
  if (most == counts.end() || most->second <= own + 1) return false;
  const auto last = std::find_if(watchers_.rbegin(), watchers_.rend(),
                                 [&](const Watcher& w) { return w.owner == most->first; });
  (void)last->responder.finish_with(kGaveWay);
  watchers_.erase(std::next(last).base());
  return true;
}

void LiveFeed::close() {
  std::thread thread;
  {
    const std::lock_guard lock(mutex_);
    closed_ = true;
    thread = std::move(thread_);
  }
  changed_.notify_all();
  if (thread.joinable()) thread.join();
  const std::lock_guard lock(mutex_);
  for (const Watcher& watcher : std::exchange(watchers_, {})) watcher.responder.finish();
}

size_t LiveFeed::watchers() const {
  const std::lock_guard lock(mutex_);
  return watchers_.size();
}

void LiveFeed::serve() {
  pthread_setname_np(pthread_self(), "live");
  while (true) {
    std::vector<Watcher> watchers;
    {
      std::unique_lock lock(mutex_);
      if (watchers_.empty()) answers_.clear();
      changed_.wait(lock, [&] { return closed_ || !watchers_.empty(); });
      if (closed_) return;
      watchers = watchers_;
    }
    try {
      send_frames(watchers);
    } catch (const std::exception& error) {  // memory is short: this frame is left out
      log_error("live: {}", error.what());
    }
    std::unique_lock lock(mutex_);
    std::erase_if(watchers_, [](const Watcher& w) { return w.responder.hung_up(); });
    changed_.wait_for(lock, kInterval, [&] { return closed_; });
    if (closed_) return;
  }
}

LivePicture LiveFeed::picture() {
  LivePicture picture{.now = context_->clock.now(), .models = {}};
  for (ModelStatus& status : context_->models.models()) {
    LiveModel model;
    if (status.served) {
      auto& answer = answers_[status.config.id];
      if (!answer) answer = std::make_shared<Answer>();
      std::unique_lock lock(answer->mutex);
      model.view = answer->view;
      const bool asks = !std::exchange(answer->is_asked, true);
      lock.unlock();
      if (asks) ask(*status.served, answer);
    } else {
      answers_.erase(status.config.id);
    }
    model.status = std::move(status);
    picture.models.push_back(std::move(model));
  }
  return picture;
}

void LiveFeed::ask(ServedModel& served, const std::shared_ptr<Answer>& answer) try {
  served.view([answer](Result<std::shared_ptr<const SchedulerView>> view) {
    const std::lock_guard hold(answer->mutex);
    answer->view = view.ok() ? std::move(*view) : nullptr;
    answer->is_asked = false;
  });
} catch (
    const std::exception&) {  // memory is short: no answer comes, and the next frame asks again
  const std::lock_guard hold(answer->mutex);
  answer->is_asked = false;
  throw;
}

void LiveFeed::send_frames(std::vector<Watcher>& watchers) {
  const LivePicture now = picture();
  const bool is_stale = context_->knows_keys_no_more();
  std::map<std::string, std::string> frames;  // by owner
  for (const Watcher& watcher : watchers) {
    const auto who = context_->keys.authenticate(watcher.credential);
    const bool is_known = who != nullptr && who->key_id == watcher.owner;
    if (!is_known || is_stale) {
      end_watchers(watcher, is_known ? "storage_unavailable" : "invalid_api_key");
      continue;
    }
    std::string& frame = frames[watcher.owner];
    if (frame.empty()) frame = "data: " + live_text(*context_, now, *who) + "\n\n";
    (void)watcher.responder.write(frame);  // who is behind misses it; who is gone is found later
  }
}

void LiveFeed::end_watchers(const Watcher& like, std::string_view code) {
  const auto is_one = [&](const Watcher& w) {
    return w.owner == like.owner && w.credential == like.credential;
  };
  const std::string last = fmt::format("event: error\ndata: {{\"code\":\"{}\"}}\n\n", code);
  const std::lock_guard lock(mutex_);
  for (const Watcher& watcher : watchers_) {
    if (is_one(watcher)) (void)watcher.responder.finish_with(last);
  }
  std::erase_if(watchers_, is_one);
}

}  // namespace skein
