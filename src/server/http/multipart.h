// multipart/form-data (RFC 7578) out of a body that comes in pieces.
//
//   MultipartParser parser(*boundary_of(content_type), receiver);
//   if (auto fault = parser.advance(piece)) refuse(*fault);   // as often as there are bytes
//   if (auto fault = parser.finish()) refuse(*fault);
//
// As strict as the head parser: lines end with CRLF, nothing stands before the first boundary or
// after the last, every part has one Content-Disposition with a name, and no transfer encoding
// changes its bytes. However the body is cut into pieces, the receiver gets the same parts. Memory
// is bounded by one part's head and one boundary. Pure: no I/O, one thread at a time.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "server/http/message.h"

namespace skein::http {

struct PartHead {
  std::string name;
  std::optional<std::string> filename;
};

// Who gets the parts. A Fault from any of its functions ends the parse with it.
class PartReceiver {
 public:
  virtual ~PartReceiver() = default;
  virtual std::optional<Fault> begin_part(const PartHead& head) = 0;
  virtual std::optional<Fault> part_data(std::string_view bytes) = 0;  // never empty
  virtual std::optional<Fault> end_part() = 0;
};

struct MultipartLimits {
  size_t parts = 32;
  size_t head_bytes = 8 << 10;  // of one part
};

// The boundary of a Content-Type; nullopt when it is not multipart/form-data with a sound one.
std::optional<std::string> boundary_of(std::string_view content_type);

class MultipartParser {
 public:
  // `receiver` outlives the parser.
  MultipartParser(std::string_view boundary, PartReceiver& receiver, MultipartLimits limits = {});

  // After a Fault every call gives the same one.
  std::optional<Fault> advance(std::string_view piece);
  // The body has ended: a fault unless the last boundary was there.
  std::optional<Fault> finish();

 private:
  enum class State : uint8_t {
    kFirstBoundary,
    kAfterBoundary,  // CRLF or "--" comes
    kHead,
    kData,
    kAfterLast,  // nothing or CRLF comes
  };

  // Each takes bytes from the front of held_; false when it needs more.
  bool step();
  bool first_boundary();
  bool after_boundary();
  bool head();
  bool data();
  bool after_last();
  void take(size_t bytes) { begin_ += bytes; }
  bool fail(std::string_view message);
  bool deliver(std::string_view bytes);
  std::string_view rest() const { return std::string_view(held_).substr(begin_); }

  const std::string delimiter_;  // CRLF, two dashes, the boundary
  PartReceiver& receiver_;
  const MultipartLimits limits_;
  State state_ = State::kFirstBoundary;
  size_t parts_ = 0;
  std::string held_;  // bytes that are not understood yet: from begin_ on
  size_t begin_ = 0;
  std::optional<Fault> fault_;
};

}  // namespace skein::http
