// The items of a kept response's input, as GET /v1/responses/{id}/input_items shows them.
#include <algorithm>
#include <iterator>
#include <utility>

#include "base/log.h"
#include "server/api/responses_request.h"
#include "text/json_text.h"

namespace skein::api {
namespace {

// The ids of a type begin with this, as those of an answer's items do.
std::string_view id_prefix(std::string_view type) {
  if (type == "message") return "msg_";
  if (type == "reasoning") return "rs_";
  return type.starts_with("custom_tool_call") ? "ctc_" : "fc_";
}

// A text as the one part that it stands for.
void show_content(json::Value& item) {
  json::Value& content = item["content"];
  const bool is_answer = says(item["role"], "assistant");
  if (content.is_string()) {
    json::Value part = {{"type", is_answer ? "output_text" : "input_text"},
                        {"text", std::move(content)}};
    content = json::Value::array({std::move(part)});
  }
  for (json::Value& part : content) {
    if (part.is_object() && says(part["type"], "output_text") && !part.contains("annotations")) {
      part["annotations"] = json::Value::array();
    }
  }
}

// Members of items that anybody reads. Another may be any text, and there may be as many as a body
// holds.
bool is_shown(std::string_view name) {
  constexpr std::string_view kShown[] = {"role",      "content", "status",           "name",
                                         "arguments", "call_id", "output",           "input",
                                         "phase",     "summary", "encrypted_content"};
  return std::find(std::begin(kShown), std::end(kShown), name) != std::end(kShown);
}

}  // namespace

Parsed<json::Value> read_kept_items(std::string_view list) {
  auto parsed = json::parse(list);
  if (parsed.index() == 0 && std::get<0>(parsed).is_array()) {
    return std::move(std::get<0>(parsed));
  }
  log_error("store: the items of a response are no list");
  return internal_failure();
}

json::Value shown_item(json::Value item, std::string_view response_id, size_t place) {
  if (!item.is_object()) return item;
  const auto text_of = [&item](const char* name) {
    const auto found = item.find(name);
    return found != item.end() && found->is_string() ? found->get<std::string>() : std::string();
  };
  std::string type = text_of("type");
  if (type.empty()) type = "message";
  std::string id = text_of("id");
  if (id.empty()) {
    const std::string_view number = response_id.substr(response_id.find('_') + 1);
    id = fmt::format("{}{}i{}", id_prefix(type), number, place);
  }
  json::Value shown = {{"id", id}, {"type", type}};
  for (auto& [name, value] : item.items()) {
    if (is_shown(name) && !value.is_null()) shown[name] = std::move(value);
  }
  if (!shown.contains("status")) shown["status"] = "completed";
  if (type == "message") show_content(shown);
  if (type == "reasoning" && !shown.contains("summary")) shown["summary"] = json::Value::array();
  return shown;
}

}  // namespace skein::api
