#include "server/api/item_references.h"

#include <algorithm>
#include <charconv>
#include <fmt/format.h>
#include <set>
#include <utility>

#include "server/api/responses_request.h"
#include "text/json_text.h"

namespace skein::api {
namespace {

constexpr size_t kIdNumberBytes = 32;  // of a response's id, as AnswerJob draws it
constexpr size_t kMaxItemIdBytes = 128;

// "resp_" and the number in an item's id.
std::string response_of(std::string_view id) {
  const size_t begin = id.find('_');
  if (id.size() > kMaxItemIdBytes || begin == std::string_view::npos) return {};
  const std::string_view number = id.substr(begin + 1, kIdNumberBytes);
  const auto is_hex = [](char c) { return (c >= '0' && c <= '9') || (c >= 'a' && c <= 'f'); };
  if (number.size() < kIdNumberBytes || !std::all_of(number.begin(), number.end(), is_hex))
    return {};
  return "resp_" + std::string(number);
}

// The id that an item names, where it is but a reference.
const std::string* referred_id(const json::Value& item) {
  if (!item.is_object()) return nullptr;
  const auto type = item.find("type");
  const auto id = item.find("id");
  if (id == item.end() || !id->is_string()) return nullptr;
  const bool is_reference = type == item.end() || type->is_null() ? !item.contains("role")
                                                                  : says(*type, "item_reference");
  return is_reference ? id->get_ptr<const std::string*>() : nullptr;
}

}  // namespace

std::vector<ItemReference> item_references(const json::Value& body) {
  std::vector<ItemReference> references;
  const auto input = body.is_object() ? body.find("input") : body.end();
  if (!body.is_object() || input == body.end() || !input->is_array()) return references;
  for (size_t i = 0; i < input->size(); ++i) {
    const std::string* id = referred_id((*input)[i]);
    if (id == nullptr) continue;
    std::string response_id = response_of(*id);
    // "i" and the place of an item of the input that had no id of its own, or the place in the
    // output.
    const size_t number = id->find('_') + 1 + kIdNumberBytes;
    const bool of_input = !response_id.empty() && number < id->size() && (*id)[number] == 'i';
    references.push_back({i, *id, std::move(response_id), of_input});
  }
  return references;
}

Error item_not_found(const ItemReference& reference) {
  return {.status = 404,
          .message = fmt::format("There is no item with the id '{}' that was kept here.",
                                 reference.id.substr(0, kMaxItemIdBytes)),
          .param = fmt::format("input[{}].id", reference.place),
          .code = "item_not_found"};
}

Parsed<std::vector<std::string>> referred_responses(const std::vector<ItemReference>& references) {
  std::vector<std::string> ids;
  std::set<std::string_view> items;
  for (const ItemReference& reference : references) {
    if (reference.response_id.empty()) return item_not_found(reference);
    // So the items cannot take more than what was kept.
    if (!items.insert(reference.id).second) {
      return invalid_field(fmt::format("input[{}].id", reference.place),
                           "It stands in the input already.");
    }
    ids.push_back(reference.response_id);
  }
  std::sort(ids.begin(), ids.end());
  ids.erase(std::unique(ids.begin(), ids.end()), ids.end());
  if (ids.size() > kMaxReferredResponses) {
    return invalid_field(
        "input", fmt::format("It refers to items of {} responses, and {} is the most.", ids.size(),
                             kMaxReferredResponses));
  }
  return ids;
}

std::optional<json::Value> find_kept_item(json::Value& list, const ItemReference& reference) {
  const size_t number = reference.id.find('_') + 1 + kIdNumberBytes;
  const std::string_view place_text =
      std::string_view(reference.id).substr(number + (reference.of_input ? 1 : 0));
  const char* end = place_text.data() + place_text.size();
  size_t place = 0;
  const auto read = std::from_chars(place_text.data(), end, place);
  if (read.ec != std::errc() || read.ptr != end || place >= list.size()) return std::nullopt;
  json::Value shown = shown_item(std::move(list[place]), reference.response_id, place);
  if (shown.is_object() && shown["id"] == reference.id) return shown;
  return std::nullopt;
}

}  // namespace skein::api
