#include "server/observe/traces.h"

#include <algorithm>
#include <charconv>
#include <fmt/format.h>
#include <memory>
#include <utility>

#include "server/json.h"
#include "server/observe/trace_sender.h"
#include "server/store/random.h"

namespace skein {
namespace {

using json::append_member;
using json::append_name;
using json::append_string;

constexpr int kSpanServer = 2, kSpanInternal = 1;
constexpr int kStatusError = 2;
constexpr size_t kTraceBytes = 16, kSpanBytes = 8;

bool is_lower_hex(std::string_view text) {
  return std::all_of(text.begin(), text.end(),
                     [](char c) { return (c >= '0' && c <= '9') || (c >= 'a' && c <= 'f'); });
}

bool is_zero(std::string_view text) {
  return text.find_first_not_of('0') == std::string_view::npos;
}

void append_text_attribute(std::string& out, std::string_view key, std::string_view text) {
  if (out.back() != '[') out.push_back(',');
  out.push_back('{');
  append_member(out, "key", key);
  append_name(out, "value");
  out.push_back('{');
  append_member(out, "stringValue", text);
  out.append("}}");
}

// 64-bit numbers are texts in OTLP's JSON.
void append_count_attribute(std::string& out, std::string_view key, uint64_t count) {
  if (out.back() != '[') out.push_back(',');
  out.push_back('{');
  append_member(out, "key", key);
  append_name(out, "value");
  out.push_back('{');
  append_member(out, "intValue", fmt::format("{}", count));
  out.append("}}");
}

struct SpanIds {
  std::string trace, span, parent;
};

// `{` and what every span has.
void begin_span(std::string& out, const SpanIds& ids, std::string_view name, int kind,
                uint64_t began_ns, uint64_t ended_ns) {
  if (out.back() != '[') out.push_back(',');
  out.push_back('{');
  append_member(out, "traceId", ids.trace);
  append_member(out, "spanId", ids.span);
  if (!ids.parent.empty()) append_member(out, "parentSpanId", ids.parent);
  append_member(out, "name", name);
  append_member(out, "kind", kind);
  append_member(out, "startTimeUnixNano", fmt::format("{}", began_ns));
  append_member(out, "endTimeUnixNano", fmt::format("{}", ended_ns));
}

void append_about(std::string& out, const FinishedRequest& request) {
  append_name(out, "attributes");
  out.push_back('[');
  append_text_attribute(out, "http.route", request.route);
  append_count_attribute(out, "http.response.status_code", static_cast<uint64_t>(request.status));
  append_text_attribute(out, "gen_ai.request.model", request.model);
  append_count_attribute(out, "gen_ai.usage.input_tokens", request.prompt_tokens);
  append_count_attribute(out, "gen_ai.usage.output_tokens", request.output_tokens);
  append_text_attribute(out, "skein.id", request.id);
  append_text_attribute(out, "skein.request_id", request.request_id);
  append_text_attribute(out, "skein.key", request.key_name);
  append_text_attribute(out, "skein.class", name_of(request.priority));
  append_text_attribute(out, "skein.finish_reason", name_of(request.reason));
  append_count_attribute(out, "skein.cached_tokens", request.cached_tokens);
  append_count_attribute(out, "skein.preemptions", request.preemptions);
  out.push_back(']');
  if (request.status < 500 && request.reason != FinishReason::kError) return;
  append_name(out, "status");
  out.push_back('{');
  append_member(out, "code", kStatusError);
  out.push_back('}');
}

void append_request(std::string& out, const TracedRequest& traced) {
  const FinishedRequest& request = traced.request;
  const auto client = parse_trace_parent(request.trace_parent);
  const SpanIds ids{client ? client->trace : random_hex(kTraceBytes), random_hex(kSpanBytes),
                    client ? client->span : std::string()};
  const auto total_us = static_cast<uint64_t>(std::max<TimeUs>(0, request.total_us));
  const uint64_t began_ns = traced.ended_ns - total_us * 1000;
  begin_span(out, ids, "POST " + request.route, kSpanServer, began_ns, traced.ended_ns);
  append_about(out, request);
  out.push_back('}');
  // The stretches follow each other up to the end; what none of them accounts for came before.
  const TimeUs known_us = request.queue_us + request.prefill_us + request.decode_us;
  const std::pair<const char*, TimeUs> stretches[] = {
      {"prepare", std::max<TimeUs>(0, request.total_us - known_us)},
      {"queue", request.queue_us},
      {"prefill", request.prefill_us},
      {"decode", request.decode_us}};
  uint64_t at_ns = began_ns;
  for (const auto& [name, us] : stretches) {
    const uint64_t until_ns =
        std::min(traced.ended_ns, at_ns + static_cast<uint64_t>(std::max<TimeUs>(0, us)) * 1000);
    begin_span(out, {ids.trace, random_hex(kSpanBytes), ids.span}, name, kSpanInternal, at_ns,
               until_ns);
    out.push_back('}');
    at_ns = until_ns;
  }
}

}  // namespace

Result<TraceEndpoint> parse_trace_endpoint(std::string_view url) {
  constexpr std::string_view kScheme = "http://";
  const auto wrong = [&](std::string_view why) {
    return invalid_argument("--otlp-endpoint {}: {}; it is http://host:port/v1/traces", url, why);
  };
  if (!url.starts_with(kScheme)) return wrong("it does not begin with http://");
  const std::string_view rest = url.substr(kScheme.size());
  const size_t slash = std::min(rest.find('/'), rest.size());
  std::string_view authority = rest.substr(0, slash);
  TraceEndpoint endpoint;
  if (slash + 1 < rest.size()) endpoint.path = rest.substr(slash);
  const size_t colon = authority.rfind(':');
  if (colon != std::string_view::npos && authority.find(']', colon) == std::string_view::npos) {
    const std::string_view port = authority.substr(colon + 1);
    const auto [end, error] =
        std::from_chars(port.data(), port.data() + port.size(), endpoint.port);
    if (error != std::errc() || end != port.data() + port.size() || endpoint.port == 0) {
      return wrong("its port is none");
    }
    authority = authority.substr(0, colon);
  }
  if (authority.starts_with('[') && authority.ends_with(']')) {
    authority = authority.substr(1, authority.size() - 2);
  }
  const auto is_odd = [](char c) { return c <= ' ' || c == '\x7f' || c == '@'; };
  if (authority.empty() || std::any_of(rest.begin(), rest.end(), is_odd)) {
    return wrong("it names no host");
  }
  endpoint.host = authority;
  return endpoint;
}

std::optional<TraceParent> parse_trace_parent(std::string_view header) {
  // 00-<32 digits>-<16 digits>-<2 digits>; later versions may have more behind it.
  constexpr size_t kLength = 55;
  if (header.size() < kLength || header[2] != '-' || header[35] != '-' || header[52] != '-') {
    return std::nullopt;
  }
  const std::string_view version = header.substr(0, 2), trace = header.substr(3, 32);
  const std::string_view span = header.substr(36, 16), flags = header.substr(53, 2);
  const bool is_longer = header.size() > kLength;
  if (version == "ff" || (is_longer && (version == "00" || header[kLength] != '-')) ||
      !is_lower_hex(version) || !is_lower_hex(trace) || !is_lower_hex(span) ||
      !is_lower_hex(flags) || is_zero(trace) || is_zero(span)) {
    return std::nullopt;
  }
  const bool is_sampled = std::string_view("13579bdf").find(flags[1]) != std::string_view::npos;
  return TraceParent{std::string(trace), std::string(span), is_sampled};
}

std::string spans_json(const std::vector<TracedRequest>& requests, const TraceSource& source) {
  std::string out = R"({"resourceSpans":[{"resource":{"attributes":[)";
  append_text_attribute(out, "service.name", "skein");
  append_text_attribute(out, "service.version", source.version);
  if (!source.node.empty()) append_text_attribute(out, "service.instance.id", source.node);
  out += R"(]},"scopeSpans":[{"scope":{"name":"skein"},"spans":[)";
  for (const TracedRequest& request : requests) append_request(out, request);
  return out.append("]}]}]}");
}

Traces::Traces(TraceEndpoint endpoint, TraceSource source)
    : sender_(std::make_shared<TraceSender>(std::move(endpoint), std::move(source))),
      thread_([sender = sender_] { sender->run(); }) {}

Traces::~Traces() {
  if (sender_->close()) {
    thread_.join();
  } else {
    thread_.detach();
  }
}

void Traces::add(const FinishedRequest& request) {
  sender_->add(request);
}

uint64_t Traces::dropped() const {
  return sender_->dropped();
}

}  // namespace skein
