// The messages of a conversation, put together from pieces that come one by one.
#pragma once

#include <string>
#include <string_view>

#include "server/json.h"

namespace skein::api {

// Messages as ChatRequest has them. The pieces of a turn (thoughts, texts, calls) are one message
// until flush(); turns of one role that follow each other and are nothing but text become one.
class Turns {
 public:
  explicit Turns(json::Value& messages) : messages_(messages) {}

  // Whose the next pieces are. What was another's is flushed.
  void begin(std::string_view role);
  void add_text(std::string_view text);  // on a line of its own
  void add_thought(std::string_view text) { thought_.append(text); }
  void add_call(const std::string& id, const std::string& name, const std::string& arguments);
  void flush();

  // Messages of their own.
  void add_result(const std::string& call_id, std::string text);
  void add_system(std::string text);

  bool has_calls() const { return !calls_.empty(); }

 private:
  json::Value& messages_;
  std::string role_;
  std::string text_;
  bool has_text_ = false;
  std::string thought_;
  json::Value calls_ = json::Value::array();
};

}  // namespace skein::api
