// Items of an input that are named by their ids alone: {"type": "item_reference", "id": ..}. An id
// has its response's in it, so that what it stands for is found without a search.
#pragma once

#include <cstddef>
#include <optional>
#include <string>
#include <vector>

#include "server/api/errors.h"
#include "server/json.h"

namespace skein::api {

// Responses that the items of one input may be of.
inline constexpr size_t kMaxReferredResponses = 128;

struct ItemReference {
  size_t place = 0;  // in the input
  std::string id;
  std::string response_id;  // empty: it cannot be of one that was kept here
  bool of_input = false;    // else of the output
};

// The references of a request's body. Where it is not one, there are none.
std::vector<ItemReference> item_references(const json::Value& body);

// The distinct responses that they are of; an error where there are too many, where one cannot be,
// or where an item is named twice.
Parsed<std::vector<std::string>> referred_responses(const std::vector<ItemReference>& references);

// 404: there is no item of this id.
Error item_not_found(const ItemReference& reference);

// The item that it stands for, which is taken out of the list of its response: the input, or the
// output.
std::optional<json::Value> find_kept_item(json::Value& list, const ItemReference& reference);

}  // namespace skein::api
