// multipart/form-data (RFC 7578) as it arrives: a large file never is in memory.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "server/http/message.h"

namespace skein::http {

struct Part {
  std::string name;
  std::optional<std::string> filename;
};

// What comes out, in order: begin, data*, end for each part. A Fault stops the parser.
class PartHandler {
 public:
  virtual ~PartHandler() = default;
  virtual std::optional<Fault> begin(const Part& part) = 0;
  virtual std::optional<Fault> data(std::string_view piece) = 0;
  virtual std::optional<Fault> end() = 0;
};

// The boundary of a Content-Type; nullopt when it is not multipart/form-data with a valid one.
std::optional<std::string> multipart_boundary(std::string_view content_type);

// Strict: parts begin with CRLF and their delimiter, each has one Content-Disposition with a name,
// nothing but the last delimiter and line breaks stands around them. Bounded: kMaxParts parts with
// heads of kMaxPartHead bytes. One thread at a time.
class MultipartParser {
 public:
  static constexpr size_t kMaxParts = 16;
  static constexpr size_t kMaxPartHead = 4 << 10;

  MultipartParser(std::string_view boundary, PartHandler& handler);

  // Any cut of the body into pieces gives the same calls, but for the cut of data().
  std::optional<Fault> advance(std::string_view piece);
  // The body has ended: a Fault when it did so too early.
  std::optional<Fault> finish() const;

 private:
  enum class State : uint8_t { kDelimiter, kAfterDelimiter, kHead, kData, kEnd };

  std::optional<Fault> take_delimiter();
  std::optional<Fault> take_head();
  std::optional<Fault> take_data();
  bool step(std::optional<Fault>& fault);

  const std::string delimiter_;  // CRLF, two dashes, the boundary
  PartHandler& handler_;
  State state_ = State::kDelimiter;
  size_t parts_ = 0;
  std::string held_;  // what is not decided yet: less than a delimiter, a head, or one piece
};

}  // namespace skein::http
