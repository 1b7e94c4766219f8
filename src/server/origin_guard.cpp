#include "server/origin_guard.h"

#include <algorithm>
#include <arpa/inet.h>
#include <array>
#include <fmt/format.h>
#include <utility>

namespace skein {
namespace {

using http::equals_ignoring_case;

constexpr size_t kShownBytes = 200;  // of what a client wrote, in what it is told

struct Authority {
  std::string_view host;  // an IPv6 address without its brackets
  std::string_view port;  // empty: the scheme's own
};

// The syntax was checked by the head parser.
Authority split_authority(std::string_view text) {
  if (text.starts_with('[')) {
    const size_t end = std::min(text.find(']'), text.size() - 1);
    const std::string_view rest = text.substr(end + 1);
    return {text.substr(1, end - 1), rest.empty() ? rest : rest.substr(1)};
  }
  const size_t colon = std::min(text.find(':'), text.size());
  return {text.substr(0, colon), text.substr(std::min(colon + 1, text.size()))};
}

// An IP address in its one usual form; nullopt for names.
std::optional<std::string> address_of(std::string_view host) {
  const std::string text(host);
  for (const int family : {AF_INET, AF_INET6}) {
    std::array<unsigned char, 16> bytes{};
    if (inet_pton(family, text.c_str(), bytes.data()) != 1) continue;
    std::array<char, INET6_ADDRSTRLEN> usual{};
    inet_ntop(family, bytes.data(), usual.data(), usual.size());
    return usual.data();
  }
  return std::nullopt;
}

bool same_host(std::string_view a, std::string_view b) {
  return equals_ignoring_case(address_of(a).value_or(std::string(a)),
                              address_of(b).value_or(std::string(b)));
}

// Whether `origin` is the server itself, as the client calls it. Who ends TLS for it is not known
// here, so either scheme will do.
bool is_own(std::string_view origin, std::string_view authority) {
  const size_t mark = origin.find("://");
  if (mark == std::string_view::npos) return false;
  const std::string_view scheme = origin.substr(0, mark);
  const bool https = equals_ignoring_case(scheme, "https");
  if (!https && !equals_ignoring_case(scheme, "http")) return false;
  const std::string_view usual_port = https ? "443" : "80";
  const Authority theirs = split_authority(origin.substr(mark + 3));
  const Authority ours = split_authority(authority);
  const auto port = [&](const Authority& a) { return a.port.empty() ? usual_port : a.port; };
  return !theirs.host.empty() && same_host(theirs.host, ours.host) && port(theirs) == port(ours);
}

api::Error forbidden_origin(std::string message) {
  return {.status = 403, .message = std::move(message), .code = "forbidden_origin"};
}

// From another site, as far as the browser says.
bool is_foreign_fetch(const http::RequestHead& head) {
  return std::any_of(head.headers.begin(), head.headers.end(), [](const http::Header& field) {
    return field.name == "sec-fetch-site" && (equals_ignoring_case(field.value, "cross-site") ||
                                              equals_ignoring_case(field.value, "same-site"));
  });
}

bool is_navigation(const http::RequestHead& head) {
  const std::string* mode = head.header("sec-fetch-mode");
  return (head.method == "GET" || head.method == "HEAD") && mode != nullptr &&
         equals_ignoring_case(*mode, "navigate");
}

}  // namespace

OriginGuard::OriginGuard(Options options) : options_(std::move(options)) {
  for (const char* own : {"localhost", "127.0.0.1", "::1"}) options_.hosts.emplace_back(own);
  for (std::string& host : options_.hosts) {
    if (host.starts_with('[') && host.ends_with(']')) host = host.substr(1, host.size() - 2);
  }
}

bool OriginGuard::knows_host(std::string_view authority) const {
  const std::string_view host = split_authority(authority).host;
  if (options_.any_address && address_of(host)) return true;
  return std::any_of(options_.hosts.begin(), options_.hosts.end(),
                     [&](const std::string& known) { return same_host(known, host); });
}

std::string_view OriginGuard::subject() const {
  return options_.is_probe ? "The probe port" : "A server without API keys";
}

std::string_view OriginGuard::remedy() const {
  return options_.is_probe ? "" : ", or make a key";
}

std::optional<api::Error> OriginGuard::check_host(std::string_view host,
                                                  std::string_view target) const {
  for (const std::string_view asked : {target.empty() ? host : target, host}) {
    if (knows_host(asked)) continue;
    return forbidden_origin(
        fmt::format("{} answers only to its own names, and the Host '{}' is none of them; start "
                    "the server with --allow-host and that name{}.",
                    subject(), asked.substr(0, kShownBytes), remedy()));
  }
  if (!target.empty() && !is_own(fmt::format("http://{}", target), host)) {
    return forbidden_origin(
        fmt::format("The request's target names the host '{}' and its Host field '{}'.",
                    target.substr(0, kShownBytes), host.substr(0, kShownBytes)));
  }
  return std::nullopt;
}

std::optional<api::Error> OriginGuard::check(const http::RequestHead& head, bool is_page) const {
  const std::string* field_of_host = head.header("host");
  const std::string_view host = field_of_host == nullptr ? std::string_view() : *field_of_host;
  // Only where the parser lets it pass (a probe by HTTP/1.0), which no browser sends.
  const bool names_nobody = field_of_host == nullptr && head.target_authority.empty();
  if (!names_nobody) {
    if (auto error = check_host(host, head.target_authority)) return error;
  }
  const std::vector<std::string>& allowed = options_.cors_origins;
  bool granted = false;  // by --cors-origin
  for (const http::Header& field : head.headers) {
    if (field.name != "origin") continue;
    const bool listed = std::any_of(allowed.begin(), allowed.end(), [&](const std::string& origin) {
      return origin == "*" || equals_ignoring_case(origin, field.value);
    });
    granted |= listed;
    if (listed || is_own(field.value, host)) continue;
    return forbidden_origin(
        fmt::format("{} takes no requests from pages of '{}'; start the server with --cors-origin "
                    "and that origin{}.",
                    subject(), std::string_view(field.value).substr(0, kShownBytes), remedy()));
  }
  if (granted || !is_foreign_fetch(head) || (is_page && is_navigation(head))) return std::nullopt;
  return forbidden_origin(
      fmt::format("{} takes no requests from pages of other sites; start the server with "
                  "--cors-origin and the page's origin{}.",
                  subject(), remedy()));
}

bool is_media_type(std::string_view content_type, std::string_view expected) {
  const std::string_view type = content_type.substr(0, content_type.find(';'));
  return equals_ignoring_case(http::trimmed(type), expected);
}

}  // namespace skein
