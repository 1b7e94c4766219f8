// The head of an HTTP/1 request from untrusted bytes, strictly: whatever two readers could
// understand differently is refused, so nothing can be smuggled past a proxy in front of us.
//
// Refused with 400: a bare CR or LF, obs-fold, space before a colon, control characters, versions
// other than 1.0 and 1.1, targets that are neither /path, http://host/path nor OPTIONS *, not
// exactly one Host, more than one Content-Length or one that is not a plain number, any
// Transfer-Encoding but one `chunked`, both of the two together, bad percent-encoding. With 431:
// more bytes or fields than the limits. With 417: an Expect other than 100-continue.
//
// A fault is found at the first byte that makes it certain, however the bytes are cut; the cost is
// linear. Pure: no I/O, one thread at a time.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>

#include "server/http/message.h"

namespace skein::http {

struct HeadLimits {
  size_t bytes = 64 << 10;
  size_t fields = 100;
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

}  // namespace skein::http
