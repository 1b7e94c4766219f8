#include "server/observe/finished_request.h"

#include <string_view>

#include "server/json/append.h"

namespace skein {
namespace {

// Members of one JSON object, in the order in which they are added.
class Object {
 public:
  void text(std::string_view name, std::string_view value) {
    begin(name);
    json::append_string(out_, value);
  }
  void number(std::string_view name, int64_t value) {
    begin(name);
    json::append_int(out_, value);
  }
  void real(std::string_view name, double value) {
    begin(name);
    json::append_number(out_, value);
  }
  void boolean(std::string_view name, bool value) {
    begin(name);
    out_.append(value ? "true" : "false");
  }
  std::string take() { return std::move(out_.append("}")); }

 private:
  void begin(std::string_view name) {
    if (out_.size() > 1) out_.push_back(',');
    out_.append("\"").append(name).append("\":");
  }
  std::string out_ = "{";
};

double ms(TimeUs us) {
  return static_cast<double>(us) / kUsPerMs;
}

}  // namespace

std::string log_line(const FinishedRequest& request) {
  Object line;
  line.text("id", request.id);
  line.text("request_id", request.request_id);
  line.text("route", request.route);
  line.text("key", request.key_name);
  line.text("model", request.model);
  line.text("class", name_of(request.priority));
  line.real("start_priority", static_cast<double>(request.start_priority_milli) / 1000);
  line.text("finish_reason", name_of(request.reason));
  line.number("status", request.status);
  line.boolean("stream", request.streamed);
  line.number("choices", request.choices);
  line.number("prompt_tokens", request.prompt_tokens);
  line.number("cached_tokens", request.cached_tokens);
  line.number("output_tokens", request.output_tokens);
  line.number("preemptions", request.preemptions);
  line.real("queue_ms", ms(request.queue_us));
  line.real("prefill_ms", ms(request.prefill_us));
  line.real("decode_ms", ms(request.decode_us));
  line.real("first_token_ms", ms(request.first_token_us));
  line.real("total_ms", ms(request.total_us));
  return line.take();
}

}  // namespace skein
