// The parts of HTTP messages: values without I/O.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace skein::http {

struct Header {
  std::string name;  // of a request: in lower case
  std::string value;
};

// How the length of a request's body is known.
enum class Framing : uint8_t { kNone, kLength, kChunked };

// A request line and its fields, checked: see request_parser.h for what can be relied on.
struct RequestHead {
  std::string method;
  std::string path;              // as sent: percent-encoded, starts with '/', or "*"
  std::string query;             // as sent, without the '?'
  std::string target_authority;  // host:port of a target like http://host:port/path; else empty
  uint8_t minor_version = 1;
  std::vector<Header> headers;
  Framing framing = Framing::kNone;
  uint64_t content_length = 0;  // with kLength
  bool keep_alive = true;
  bool expects_continue = false;

  // The first field of that name (in lower case), or nullptr.
  const std::string* header(std::string_view name) const;
  // The decoded value of ?name=value; nullopt when it is not there or badly encoded.
  std::optional<std::string> query_value(std::string_view name) const;
};

struct Request {
  RequestHead head;
  std::string body;        // empty where the route streams it to a sink
  std::string peer;        // the address of the other side, without its port
  std::string request_id;  // the client's X-Request-Id, or one of ours
  // The request's part of the budget of bytes: kept by whoever keeps what was in the body.
  std::shared_ptr<void> memory = nullptr;
};

// A whole answer. The connection adds Content-Length, Date, Connection and what CORS asks for.
struct Response {
  int status = 200;
  std::string content_type = "application/json";
  std::vector<Header> headers = {};
  std::string body = {};
};

// Why a request cannot be read: what the client gets before the connection closes.
struct Fault {
  int status = 0;
  std::string_view message;  // a fixed text
};

// "Not Found" for 404; "Unknown" for what has no name.
std::string_view reason_phrase(int status);

// nullopt for a '%' without two hex digits and for what decodes to a control character.
std::optional<std::string> percent_decoded(std::string_view text);

bool equals_ignoring_case(std::string_view a, std::string_view b);
// Whether the comma-separated list has the (lower-case) token.
bool list_has_token(std::string_view list, std::string_view token);
// Whether `c` may stand in a method or a field name.
bool is_token_char(char c);
bool is_digits(std::string_view text);  // at least one
// host [":" port], where a host is a name, an IPv4 address or an IPv6 address in brackets.
bool is_authority(std::string_view text);
// -1 for what is no hex digit.
int hex_digit(char c);
// Without spaces and tabs at both ends.
std::string_view trimmed(std::string_view text);

}  // namespace skein::http
