#include "server/observe/finished_request.h"

#include "server/json.h"

namespace skein {
namespace {

using json::append_member;

double ms(TimeUs us) {
  return static_cast<double>(us) / kUsPerMs;
}

}  // namespace

void append_outcome(std::string& out, const FinishedRequest& request) {
  append_member(out, "finish_reason", name_of(request.reason));
  append_member(out, "status", request.status);
  append_member(out, "stream", request.streamed);
  append_member(out, "choices", request.choices);
  append_member(out, "prompt_tokens", request.prompt_tokens);
  append_member(out, "cached_tokens", request.cached_tokens);
  append_member(out, "output_tokens", request.output_tokens);
  append_member(out, "preemptions", request.preemptions);
  append_member(out, "prefill_chunks", request.prefill_chunks);
  append_member(out, "queue_ms", ms(request.queue_us));
  append_member(out, "prefill_ms", ms(request.prefill_us));
  append_member(out, "decode_ms", ms(request.decode_us));
  append_member(out, "first_token_ms", ms(request.first_token_us));
  append_member(out, "total_ms", ms(request.total_us));
}

std::string log_line(const FinishedRequest& request) {
  std::string line = "{";
  append_member(line, "id", request.id);
  append_member(line, "request_id", request.request_id);
  append_member(line, "route", request.route);
  append_member(line, "key", request.key_name);
  append_member(line, "model", request.model);
  append_member(line, "class", name_of(request.priority));
  append_member(line, "start_priority", static_cast<double>(request.start_priority_milli) / 1000);
  append_outcome(line, request);
  return line.append("}");
}

}  // namespace skein
