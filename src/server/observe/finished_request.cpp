#include "server/observe/finished_request.h"

#include "server/json.h"

namespace skein {
namespace {

double ms(TimeUs us) {
  return static_cast<double>(us) / kUsPerMs;
}

}  // namespace

std::string log_line(const FinishedRequest& request) {
  using json::append_member;
  std::string line = "{";
  append_member(line, "id", request.id);
  append_member(line, "request_id", request.request_id);
  append_member(line, "route", request.route);
  append_member(line, "key", request.key_name);
  append_member(line, "model", request.model);
  append_member(line, "class", name_of(request.priority));
  append_member(line, "start_priority", static_cast<double>(request.start_priority_milli) / 1000);
  append_member(line, "finish_reason", name_of(request.reason));
  append_member(line, "status", request.status);
  append_member(line, "stream", request.streamed);
  append_member(line, "choices", request.choices);
  append_member(line, "prompt_tokens", request.prompt_tokens);
  append_member(line, "cached_tokens", request.cached_tokens);
  append_member(line, "output_tokens", request.output_tokens);
  append_member(line, "preemptions", request.preemptions);
  append_member(line, "queue_ms", ms(request.queue_us));
  append_member(line, "prefill_ms", ms(request.prefill_us));
  append_member(line, "decode_ms", ms(request.decode_us));
  append_member(line, "first_token_ms", ms(request.first_token_us));
  append_member(line, "total_ms", ms(request.total_us));
  return line.append("}");
}

}  // namespace skein
