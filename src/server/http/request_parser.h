// HTTP/1 requests from untrusted bytes: their heads, and their bodies out of their framing.
//
// Strict: whatever two readers could understand differently is refused, so nothing can be smuggled
// past a proxy in front of us.
//
// Refused with 400: a bare CR or LF, obs-fold, space before a colon, control characters, versions
// other than 1.0 and 1.1, targets that are neither /path, http://host/path nor OPTIONS *, not
// exactly one Host (but see HeadLimits), more than one Content-Length or one that is not a plain
// number, any Transfer-Encoding but one `chunked`, both of the two together, bad percent-encoding.
// With 431: more bytes or fields than the limits. With 417: an Expect other than 100-continue.
//
// A fault is found at the first byte that makes it certain, however the bytes are cut; the cost is
// linear. Chunks are read as strictly as heads: sizes are plain hex digits, every line ends with
// CRLF, extensions and trailers are checked and dropped. Pure: no I/O, one thread at a time.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

#include "server/http/message.h"

namespace skein::http {

struct HeadLimits {
  size_t bytes = 64 << 10;
  size_t fields = 100;
  bool takes_http10_without_host = false;  // as load balancers ask for health by default
};

enum class ParseState : uint8_t { kNeedMore, kDone, kFailed };

class HeadParser {
 public:
  explicit HeadParser(HeadLimits limits) : limits_(limits) {}

  // Takes bytes up to the end of the head, no further; `consumed` says how many. After kDone or
  // kFailed it takes none.
  ParseState advance(std::string_view bytes, size_t& consumed);

  // Whether a byte of a request was seen (empty lines before it do not count).
  bool started() const { return state_ != State::kStart && state_ != State::kStartCr; }
  const Fault& fault() const { return fault_; }  // after kFailed
  RequestHead& head() { return head_; }          // after kDone

 private:
  enum class State : uint8_t {
    kStart,    // empty lines may come first
    kStartCr,  // CR of such a line
    kMethod,
    kTarget,
    kVersion,
    kVersionCr,
    kLine,  // first byte of a field line, or CR
    kName,
    kValue,
    kValueCr,
    kEndCr,
    kDone,
    kFailed,
  };

  void take(char c);
  void take_start_line(char c);
  void take_field(char c);
  void finish_field();
  void finish();
  void finish_target();
  void finish_framing();
  void check_host();
  void fail(int status, std::string_view message);

  HeadLimits limits_;
  State state_ = State::kStart;
  size_t bytes_ = 0;
  std::string token_;   // the part that is being read
  std::string target_;  // as sent
  RequestHead head_;
  Fault fault_;
};

// The body of a request, with its limit counted while it is read.
class BodyDecoder {
 public:
  // A Content-Length beyond the limit has failed (413) before any byte is read.
  BodyDecoder(const RequestHead& head, uint64_t limit_bytes);

  struct Step {
    ParseState state;
    size_t consumed;         // of the bytes given
    std::string_view piece;  // of the body; a view into the bytes given
  };
  // Takes some of the bytes, at most one piece of the body. To be called again with the rest until
  // it wants more (kNeedMore with everything consumed).
  Step advance(std::string_view bytes);

  ParseState state() const;
  const Fault& fault() const { return fault_; }

 private:
  enum class State : uint8_t {
    kData,  // of a body of known length
    kSize,
    kExtensionName,
    kExtensionValue,
    kQuoted,
    kQuotedEscape,
    kAfterQuoted,
    kSizeLf,
    kChunk,
    kChunkCr,
    kChunkLf,
    kTrailerLine,
    kTrailerName,
    kTrailerValue,
    kTrailerLf,
    kEndLf,
    kDone,
    kFailed,
  };

  std::string_view take_data(std::string_view bytes);
  void take(char c);
  void take_size(char c);
  void take_extension(char c);
  void take_trailer(char c);
  void end_size_line();
  void fail(int status, std::string_view message);

  State state_;
  uint64_t left_;          // of the body, or of the chunk
  uint64_t room_;          // what the limit still allows
  uint32_t digits_ = 0;    // of the chunk's size
  uint32_t length_ = 0;    // of the name or value being read
  uint32_t overhead_ = 0;  // bytes of extensions and trailers
  Fault fault_;
};

}  // namespace skein::http
