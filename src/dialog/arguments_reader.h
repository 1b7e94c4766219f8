// The arguments of a call as they come: an object, the text of one in a JSON string, or null. What
// comes out is the object's text.
#pragma once

#include <cstdint>
#include <string>

#include "dialog/json_scanner.h"

namespace skein::dialog {

enum class Take : uint8_t { kTaken, kEnded, kRefused };

// The inside of a JSON string that is known to be well formed, decoded as it comes.
class StringDecoder {
 public:
  void push(char byte, std::string& out);

 private:
  void push_plain(char byte, std::string& out);
  void push_hex(char byte, std::string& out);
  void drop_half(std::string& out);

  bool escape_ = false;
  int hex_left_ = 0;
  char32_t code_ = 0, high_ = 0;
};

class ArgumentsReader {
 public:
  Take take(char byte, std::string& out);

 private:
  enum class Kind : uint8_t { kNone, kObject, kText, kNull, kRefused };
  Take take_text(char byte, std::string& out);

  Kind kind_ = Kind::kNone;
  bool begun_ = false;         // kText: something but white space has come
  JsonScanner outer_, inner_;  // inner_: of what the text says
  StringDecoder decoder_;
};

}  // namespace skein::dialog
