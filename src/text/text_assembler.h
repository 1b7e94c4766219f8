// Token ids in, text out, as they are generated. What comes out
//  1. is whole characters of valid UTF-8: an invalid part becomes U+FFFD, and a character that is
//     still incomplete at the very end is dropped;
//  2. joined, is the same for any chunking, and equals Tokenizer::decode of all ids;
//  3. never contains a stop string nor what follows it: a text that may be the start of one is held
//     back until that is decided.
// One per stream, for one thread at a time. The tokenizer must outlive it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/ids.h"
#include "base/status.h"
#include "text/tokenizer.h"

namespace skein {

inline constexpr size_t kMaxStops = 16;
inline constexpr size_t kMaxStopBytes = 1024;

// Looks for up to 16 stop strings in a stream of bytes, in linear time (Knuth, Morris and Pratt,
// one automaton a string).
class StopMatcher {
 public:
  static Result<StopMatcher> create(std::vector<std::string> stops);

  bool empty() const { return stops_.empty(); }

  // Takes the next byte. True when it completes a stop string; of several, the longest, which is
  // the one that began first, is matched().
  bool push(char byte);
  size_t matched() const { return matched_; }
  size_t matched_bytes() const { return stops_[matched_].text.size(); }

  // How many of the last bytes may be the start of a stop string.
  size_t pending() const { return pending_; }
  // As if nothing had come yet.
  void restart();

 private:
  struct Stop {
    std::string text;
    std::vector<uint16_t> fallback;  // by length matched: the longest border of that prefix
    uint16_t length = 0;             // matched so far
  };
  std::vector<Stop> stops_;
  size_t matched_ = 0;
  size_t pending_ = 0;
};

// Text in, the text that certainly stands in front of every stop string out. Text comes in whole
// characters.
class StopFilter {
 public:
  explicit StopFilter(StopMatcher stops) : stops_(std::move(stops)) {}

  void push(std::string_view text, std::string& out);
  // The text ends here: what was held back is text.
  void flush(std::string& out);

  bool stopped() const { return stopped_; }
  size_t stop_index() const { return stop_index_; }

 private:
  StopMatcher stops_;
  std::string held_;  // text that may be the start of a stop string
  bool stopped_ = false;
  size_t stop_index_ = 0;
};

class TextAssembler {
 public:
  // Fails on more than 16 stop strings, an empty one, one over 1,024 bytes or not UTF-8.
  static Result<TextAssembler> create(const Tokenizer& tokenizer, DecodeOptions options,
                                      std::vector<std::string> stops);

  // Appends to `out` the text that is now certain. Fails, changing nothing, on an id outside the
  // vocabulary. Ids that come after a stop are not looked at.
  Status push(TokenId id, std::string& out);

  // The end of the stream: appends what was held back.
  void finish(std::string& out);

  // A stop string has been completed; push() has been called tokens() times by then, and
  // stop_index() says which string it was.
  bool stopped() const { return stops_.stopped(); }
  size_t stop_index() const { return stops_.stop_index(); }
  // No character is begun and not complete.
  bool is_between_characters() const { return partial_.empty(); }
  // How many ids were taken, the one that completed the stop included.
  size_t tokens() const { return tokens_; }

 private:
  TextAssembler(const Tokenizer& tokenizer, DecodeOptions options, StopFilter stops)
      : tokenizer_(&tokenizer),
        options_(options),
        stops_(std::move(stops)),
        strip_space_(tokenizer.strips_leading_space() && !options.continuation) {}
  void take(std::string_view bytes, std::string& out);

  const Tokenizer* tokenizer_;
  DecodeOptions options_;
  StopFilter stops_;
  bool strip_space_;     // the next byte, if it is a space, is dropped
  std::string partial_;  // the bytes of a character that is not complete
  size_t tokens_ = 0;
};

}  // namespace skein
