// One JSON value (RFC 8259), byte by byte: where it ends, and whether it is one.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string_view>
#include <vector>

namespace skein::dialog {

inline constexpr size_t kMaxJsonDepth = 128;

class JsonScanner {
 public:
  enum class Step : uint8_t {
    kTaken,
    kEnded,        // with this byte
    kEndedBefore,  // a number, whose end shows in the byte behind it
    kRefused,
  };

  Step push(char byte);
  // The text ends here: whether the value is whole.
  bool finish() const { return state_ == State::kEnd || (in_number_end() && open_.empty()); }

 private:
  enum class State : uint8_t {
    kValue,
    kFirstItem,  // a value, or the end of the list
    kFirstKey,
    kKey,
    kColon,
    kBehind,  // a comma, or the end
    kString,
    kEscape,
    kHex,
    kWord,
    kMinus,
    kZero,
    kDigits,
    kPoint,
    kFraction,
    kExponent,
    kSign,
    kPower,
    kEnd,
  };
  bool in_number_end() const {
    return state_ == State::kZero || state_ == State::kDigits || state_ == State::kFraction ||
           state_ == State::kPower;
  }
  Step begin_value(char byte);
  Step open(bool object);
  Step close(bool object);
  Step behind_value();
  Step push_string(char byte);
  Step push_word(char byte);
  Step push_number(char byte);
  Step push_behind(char byte);

  State state_ = State::kValue;
  bool key_ = false;  // the string is a key
  uint8_t hex_left_ = 0;
  const char* word_ = "";   // what is left of true, false, null
  std::vector<bool> open_;  // true: an object
};

// Whether `text` is one value and nothing else.
bool is_whole_json(std::string_view text);

}  // namespace skein::dialog
