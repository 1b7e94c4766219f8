#include "bench/http_load.h"

#include <algorithm>
#include <array>
#include <boost/asio/connect.hpp>
#include <boost/asio/io_context.hpp>
#include <boost/asio/ip/tcp.hpp>
#include <boost/asio/steady_timer.hpp>
#include <boost/asio/write.hpp>
#include <charconv>
#include <fmt/format.h>
#include <memory>
#include <nlohmann/json.hpp>
#include <utility>

#include "bench/sse_answer.h"

namespace skein::bench {
namespace {

namespace asio = boost::asio;
using asio::ip::tcp;
using boost::system::error_code;
using BodyJson = nlohmann::json;

constexpr std::chrono::milliseconds kCancelPeriod{50};

std::string request_text(const HttpTarget& target, const char* method, std::string_view path,
                         const std::string& key, const std::string& body) {
  std::string text = fmt::format(
      "{} {}{} HTTP/1.1\r\nHost: {}\r\nConnection: close\r\nUser-Agent: skein-bench\r\n", method,
      target.url.path, path, target.url.authority());
  if (!key.empty()) text += fmt::format("Authorization: Bearer {}\r\n", key);
  if (!body.empty()) {
    text += fmt::format("Content-Type: application/json\r\nContent-Length: {}\r\n", body.size());
  }
  return text + "\r\n" + body;
}

std::string completion_body(const HttpTarget& target, const WorkItem& item) {
  BodyJson body = {{"max_tokens", item.max_tokens},
                   {"temperature", item.temperature},
                   {"ignore_eos", !item.ends_by_itself},
                   {"stream", true},
                   {"stream_options", {{"include_usage", true}}}};
  if (!target.model.empty()) body["model"] = target.model;
  if (item.temperature > 0) body["seed"] = item.number;
  if (target.chat) {
    body["messages"] = {{{"role", "user"}, {"content", item.text}}};
    if (!item.beginning.empty()) {
      body["messages"].push_back({{"role", "assistant"}, {"content", item.beginning}});
      body["continue_final_message"] = true;
      body["add_generation_prompt"] = false;
    }
  } else if (!item.text.empty()) {
    body["prompt"] = item.text;
  } else {
    // Ids that every vocabulary has, clear of control tokens.
    constexpr uint32_t kFirst = 1000, kCommon = 16'000;
    std::vector<TokenId> tokens = made_up_tokens(item, kCommon);
    if (item.tokens.empty()) {
      for (TokenId& token : tokens) token += kFirst;
    }
    body["prompt"] = tokens;
  }
  return body.dump(-1, ' ', false, BodyJson::error_handler_t::replace);
}

// One request over a connection of its own. Calls `done` once; alive while something is under way.
class Session : public std::enable_shared_from_this<Session> {
 public:
  using Done = std::function<void(const Status&)>;

  Session(asio::io_context& io, std::string request, AnswerReader::OnEvent on_event,
          TimeUs patience_us)
      : socket_(io),
        timer_(io),
        request_(std::move(request)),
        reader_(std::move(on_event)),
        patience_(patience_us) {}

  void start(const tcp::resolver::results_type& where, Done done) {
    done_ = std::move(done);
    watch();
    asio::async_connect(socket_, where,
                        [self = shared_from_this()](error_code error, const tcp::endpoint&) {
                          if (error) return self->finish(self->fault("connect", error));
                          self->write();
                        });
  }
  const AnswerReader& reader() const { return reader_; }

 private:
  Status fault(const char* what, error_code error) const {
    if (timed_out_)
      return deadline_exceeded("no byte came for {} s", patience_.count() / 1'000'000);
    return unavailable("{}: {}", what, error.message());
  }

  // A server that says nothing for too long is given up.
  void watch() {
    timer_.expires_after(patience_);
    timer_.async_wait([self = shared_from_this()](error_code error) {
      if (error) return;
      self->timed_out_ = true;
      error_code ignored;
      self->socket_.close(ignored);
    });
  }

  void write() {
    error_code ignored;
    socket_.set_option(tcp::no_delay(true), ignored);
    asio::async_write(socket_, asio::buffer(request_),
                      [self = shared_from_this()](error_code error, size_t) {
                        if (error) return self->finish(self->fault("send", error));
                        self->read();
                      });
  }

  void read() {
    socket_.async_read_some(
        asio::buffer(buffer_),
        [self = shared_from_this()](error_code error, size_t count) { self->took(error, count); });
  }

  void took(error_code error, size_t count) {
    if (error == asio::error::eof) return finish(reader_.closed());
    if (error) return finish(fault("receive", error));
    watch();
    const Status fed = reader_.feed({buffer_.data(), count});
    if (!fed.ok() || reader_.complete()) return finish(fed);
    read();
  }

  void finish(const Status& status) {
    timer_.cancel();
    error_code ignored;
    socket_.close(ignored);
    std::exchange(done_, [](const Status&) {})(status);
  }

  tcp::socket socket_;
  asio::steady_timer timer_;
  const std::string request_;
  AnswerReader reader_;
  const std::chrono::microseconds patience_;
  Done done_;
  bool timed_out_ = false;
  std::array<char, 16384> buffer_;
};

Status status_of_answer(const AnswerReader& reader) {
  if (reader.status() == 200) return {};
  return unavailable("the server answers {}: {}", reader.status(),
                     reader.body().substr(0, std::min<size_t>(reader.body().size(), 300)));
}

class HttpLoad {
 public:
  HttpLoad(const HttpTarget& target, std::span<const WorkItem> items, uint32_t concurrency,
           const Clock& clock, const std::function<void(uint64_t)>& on_tokens,
           const std::atomic<bool>& cancel)
      : target_(target),
        items_(items),
        concurrency_(concurrency),
        clock_(clock),
        on_tokens_(on_tokens),
        cancel_(cancel),
        arrival_(io_),
        look_(io_),
        totals_(items.size()) {
    run_.requests.resize(items.size());
  }

  LoadRun run() {
    run_.began = clock_.now();
    error_code error;
    where_ = tcp::resolver(io_).resolve(target_.url.host, std::to_string(target_.url.port), error);
    if (error) {
      for (RequestRecord& record : run_.requests) {
        record.status = unavailable("{}: {}", target_.url.host, error.message());
      }
      run_.ended = clock_.now();
      return std::move(run_);
    }
    look_for_cancel();
    if (concurrency_ == 0) {
      wait_for_arrival();
    } else {
      while (live_ < concurrency_ && next_ < items_.size()) send();
    }
    io_.run();
    run_.ended = clock_.now();
    run_.requests.resize(next_);
    for (size_t i = 0; i < next_; ++i) {
      if (run_.requests[i].ended != 0) continue;  // else it was cut short
      run_.requests[i].ended = run_.ended;
      run_.requests[i].generated_tokens = totals_[i].events_with_text;
    }
    return std::move(run_);
  }

 private:
  bool all_done() const { return live_ == 0 && next_ == items_.size(); }

  void look_for_cancel() {
    look_.expires_after(kCancelPeriod);
    look_.async_wait([this](error_code) {
      if (all_done()) return;
      if (cancel_.load(std::memory_order_relaxed)) {
        run_.interrupted = true;
        io_.stop();
        return;
      }
      look_for_cancel();
    });
  }

  void wait_for_arrival() {
    if (next_ == items_.size()) return;
    const TimeUs due = run_.began + items_[next_].arrival_us - clock_.now();
    arrival_.expires_after(std::chrono::microseconds(std::max<TimeUs>(0, due)));
    arrival_.async_wait([this](error_code) {
      send();
      wait_for_arrival();
    });
  }

  void send() {
    const size_t i = next_++;
    ++live_;
    RequestRecord& record = run_.requests[i];
    record.priority = items_[i].priority;
    const std::string& key = target_.keys[static_cast<size_t>(record.priority)];
    std::string request =
        request_text(target_, "POST", target_.chat ? "/chat/completions" : "/completions", key,
                     completion_body(target_, items_[i]));
    const auto session = std::make_shared<Session>(
        io_, std::move(request), [this, i](std::string_view data) { event(i, data); },
        target_.patience_us);
    record.sent = clock_.now();
    session->start(where_, [this, i, at = session.get()](const Status& status) {
      end(i, at->reader(), status);
    });
  }

  void event(size_t i, std::string_view data) {
    if (!read_event(data, totals_[i])) return;
    run_.requests[i].arrivals.push_back(clock_.now());
    on_tokens_(++tokens_);
  }

  void end(size_t i, const AnswerReader& reader, const Status& status) {
    RequestRecord& record = run_.requests[i];
    const StreamTotals& totals = totals_[i];
    record.ended = clock_.now();
    record.prompt_tokens = totals.prompt_tokens;
    record.cached_tokens = totals.cached_tokens;
    record.generated_tokens =
        totals.generated_tokens != 0 ? totals.generated_tokens : totals.events_with_text;
    record.status = status.ok() ? status_of_answer(reader) : status;
    if (record.status.ok()) record.status = totals.error;
    if (record.status.ok() && !totals.done) record.status = data_loss("the stream has no end");
    record.complete = record.status.ok();
    --live_;
    if (concurrency_ > 0 && next_ < items_.size()) send();
    if (all_done()) look_.cancel();
  }

  const HttpTarget& target_;
  const std::span<const WorkItem> items_;
  const uint32_t concurrency_;
  const Clock& clock_;
  const std::function<void(uint64_t)>& on_tokens_;
  const std::atomic<bool>& cancel_;

  asio::io_context io_;
  asio::steady_timer arrival_;
  asio::steady_timer look_;
  tcp::resolver::results_type where_;
  std::vector<StreamTotals> totals_;
  LoadRun run_;
  size_t next_ = 0;
  uint64_t live_ = 0;
  uint64_t tokens_ = 0;
};

}  // namespace

std::string ServerUrl::authority() const {
  const bool is_ipv6 = host.find(':') != std::string::npos;
  return fmt::format("{}{}{}:{}", is_ipv6 ? "[" : "", host, is_ipv6 ? "]" : "", port);
}

Result<ServerUrl> parse_url(std::string_view url) {
  const std::string_view whole = url;
  if (!url.starts_with("http://")) {
    return invalid_argument(
        "'{}' is not an http:// URL (TLS is left to whoever stands before the "
        "server)",
        whole);
  }
  url.remove_prefix(7);
  ServerUrl out;
  const size_t slash = std::min(url.find('/'), url.size());
  out.path = url.substr(slash);
  std::string_view host = url.substr(0, slash);
  while (out.path.ends_with('/')) out.path.pop_back();
  if (!out.path.ends_with("/v1")) out.path += "/v1";
  const size_t bracket = host.find(']');  // of an IPv6 address
  const size_t colon = host.find(':', bracket == std::string_view::npos ? 0 : bracket);
  if (colon != std::string_view::npos) {
    const std::string_view port = host.substr(colon + 1);
    const auto [end, error] = std::from_chars(port.data(), port.data() + port.size(), out.port);
    if (error != std::errc() || end != port.data() + port.size() || out.port == 0) {
      return invalid_argument("'{}' has no port that is a number", whole);
    }
    host = host.substr(0, colon);
  }
  if (host.starts_with('[') && host.ends_with(']')) host = host.substr(1, host.size() - 2);
  if (host.empty()) return invalid_argument("'{}' names no host", whole);
  out.host = host;
  return out;
}

Result<std::string> first_model(const HttpTarget& target) {
  asio::io_context io;
  error_code error;
  const auto where =
      tcp::resolver(io).resolve(target.url.host, std::to_string(target.url.port), error);
  if (error) return unavailable("{}: {}", target.url.host, error.message());
  std::string key;  // any of them will do
  for (const std::string& one : target.keys) key = one.empty() ? key : one;
  Status ended;
  const auto session = std::make_shared<Session>(
      io, request_text(target, "GET", "/models", key, ""), [](std::string_view) {},
      target.patience_us);
  session->start(where, [&](const Status& status) { ended = status; });
  io.run();
  SKEIN_TRY(std::move(ended));
  SKEIN_TRY(status_of_answer(session->reader()));
  const BodyJson body = BodyJson::parse(session->reader().body(), nullptr, false);
  static const BodyJson::json_pointer kFirstId("/data/0/id");
  if (!body.contains(kFirstId) || !body[kFirstId].is_string()) {
    return not_found("the server names no model");
  }
  return body[kFirstId].get<std::string>();
}

Status watch_events(const HttpTarget& target, std::string_view path,
                    const std::function<bool(std::string_view)>& on_event,
                    const std::atomic<bool>& cancel) {
  asio::io_context io;
  error_code error;
  const auto where =
      tcp::resolver(io).resolve(target.url.host, std::to_string(target.url.port), error);
  if (error) return unavailable("{}: {}", target.url.host, error.message());
  bool wants_more = true;
  bool has_ended = false;
  Status ended;
  const auto session = std::make_shared<Session>(
      io, request_text(target, "GET", path, target.keys[0], ""),
      [&](std::string_view data) { wants_more = wants_more && on_event(data); },
      target.patience_us);
  session->start(where, [&](const Status& status) {
    ended = status;
    has_ended = true;
  });
  while (!has_ended && wants_more && !cancel) io.run_for(kCancelPeriod);
  if (!has_ended) return {};
  SKEIN_TRY(std::move(ended));
  return status_of_answer(session->reader());
}

LoadRun run_http_load(const HttpTarget& target, std::span<const WorkItem> items,
                      uint32_t concurrency, const Clock& clock,
                      const std::function<void(uint64_t)>& on_tokens,
                      const std::atomic<bool>& cancel) {
  return HttpLoad(target, items, concurrency, clock, on_tokens, cancel).run();
}

}  // namespace skein::bench
