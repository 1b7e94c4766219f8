#include "server/api/turns.h"

#include <utility>

namespace skein::api {
namespace {

// Two messages that can be told as one.
bool joins(const json::Value& before, const json::Value& next) {
  const auto is_plain = [](const json::Value& message) {
    return message.size() == 2 && message["content"].is_string();
  };
  return before["role"] == next["role"] && is_plain(before) && is_plain(next);
}

}  // namespace

void Turns::begin(std::string_view role) {
  if (role_ == role) return;
  flush();
  role_ = role;
}

void Turns::add_text(std::string_view text) {
  if (std::exchange(has_text_, true)) text_.push_back('\n');
  text_.append(text);
}

void Turns::add_call(const std::string& id, const std::string& name, const std::string& arguments) {
  json::Value call = {
      {"type", "function"}, {"id", id}, {"function", {{"name", name}, {"arguments", arguments}}}};
  calls_.push_back(std::move(call));
}

void Turns::flush() {
  if (!has_text_ && thought_.empty() && calls_.empty()) return;
  json::Value message = {{"role", role_}, {"content", nullptr}};
  if (has_text_ || calls_.empty()) message["content"] = std::move(text_);
  if (!thought_.empty()) message["reasoning_content"] = std::move(thought_);
  if (!calls_.empty()) message["tool_calls"] = std::move(calls_);
  if (!messages_.empty() && joins(messages_.back(), message)) {
    auto& before = messages_.back()["content"].get_ref<std::string&>();
    before.append("\n").append(message["content"].get_ref<const std::string&>());
  } else {
    messages_.push_back(std::move(message));
  }
  has_text_ = false;
  text_.clear();
  thought_.clear();
  calls_ = json::Value::array();
}

void Turns::add_result(const std::string& call_id, std::string text) {
  flush();
  json::Value message = {{"role", "tool"}};
  if (!call_id.empty()) message["tool_call_id"] = call_id;
  message["content"] = std::move(text);
  messages_.push_back(std::move(message));
}

void Turns::add_system(std::string text) {
  flush();
  messages_.push_back({{"role", "system"}, {"content", std::move(text)}});
}

}  // namespace skein::api
