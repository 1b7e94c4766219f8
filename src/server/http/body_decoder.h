// The bytes of a request's body out of its framing, with the limit counted while reading.
//
// Chunks as strictly as heads: sizes are plain hex digits, every line ends with CRLF, extensions
// and trailers are checked and dropped. Pure: no I/O, one thread at a time.
#pragma once

#include <cstdint>
#include <string_view>

#include "server/http/head_parser.h"
#include "server/http/message.h"

namespace skein::http {

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
