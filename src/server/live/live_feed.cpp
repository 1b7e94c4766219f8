#include "server/live/live_feed.h"

#include <algorithm>
#include <exception>
#include <fmt/format.h>
#include <pthread.h>
#include <system_error>
#include <utility>

#include "base/log.h"
#include "server/context.h"

namespace skein {

Status LiveFeed::watch(const ServerContext& context, std::string credential, std::string owner,
                       http::Responder responder) {
  const std::lock_guard lock(mutex_);
  if (closed_) return unavailable("the server is stopping");
  const auto own = std::count_if(watchers_.begin(), watchers_.end(),
                                 [&](const Watcher& w) { return w.owner == owner; });
  if (watchers_.size() >= kMaxWatchers) {
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
  responder.start({.headers = {{"Cache-Control", "no-store"}}});
  watchers_.push_back({std::move(credential), std::move(owner), std::move(responder)});
  changed_.notify_all();
  return {};
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
      if (asks) {
        status.served->view([answer = answer](Result<std::shared_ptr<const SchedulerView>> view) {
          const std::lock_guard hold(answer->mutex);
          answer->view = view.ok() ? std::move(*view) : nullptr;
          answer->is_asked = false;
        });
      }
    } else {
      answers_.erase(status.config.id);
    }
    model.status = std::move(status);
    picture.models.push_back(std::move(model));
  }
  return picture;
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
