#include "grammar/schema_refs.h"

#include <vector>

namespace skein::grammar {
namespace {

std::string_view without_fragment(std::string_view uri) {
  return uri.substr(0, std::min(uri.find('#'), uri.size()));
}

bool has_scheme(std::string_view uri) {
  const size_t colon = uri.find(':');
  return colon != std::string_view::npos && colon > 0 && colon < uri.find_first_of("/?#");
}

std::string without_dots(std::string_view path) {
  std::vector<std::string_view> parts;
  for (size_t at = 0; at <= path.size();) {
    const size_t end = std::min(path.find('/', at), path.size());
    const std::string_view part = path.substr(at, end - at);
    const bool last = end == path.size();
    if (part == "..") {
      if (parts.size() > 1) parts.pop_back();
      if (last) parts.emplace_back();
    } else if (part != "." || last) {
      parts.push_back(part == "." ? "" : part);
    }
    at = end + 1;
  }
  std::string result;
  for (size_t i = 0; i < parts.size(); ++i) result += (i > 0 ? "/" : "") + std::string(parts[i]);
  return result;
}

// RFC 3986, section 5, as far as names inside one document need it.
std::string resolved(std::string_view base, std::string_view reference) {
  if (reference.empty()) return std::string(base);
  if (has_scheme(reference)) return std::string(reference);
  base = without_fragment(base);
  if (reference[0] == '#') return std::string(base) + std::string(reference);
  const size_t colon = has_scheme(base) ? base.find(':') + 1 : 0;
  size_t path = colon;
  if (base.substr(colon, 2) == "//") path = std::min(base.find('/', colon + 2), base.size());
  if (reference.substr(0, 2) == "//") {
    return std::string(base.substr(0, colon)) + std::string(reference);
  }
  const std::string_view front = base.substr(0, path);
  if (reference[0] == '/') return std::string(front) + without_dots(reference);
  const size_t slash = base.rfind('/');
  std::string folder = slash == std::string_view::npos || slash < path
                           ? ""
                           : std::string(base.substr(path, slash + 1 - path));
  if (folder.empty() && path > colon) folder = "/";
  return std::string(front) + without_dots(folder + std::string(reference));
}

std::string percent_decoded(std::string_view text) {
  const auto hex = [](char c) {
    return c >= '0' && c <= '9'                 ? c - '0'
           : (c | 32) >= 'a' && (c | 32) <= 'f' ? (c | 32) - 'a' + 10
                                                : -1;
  };
  std::string result;
  for (size_t i = 0; i < text.size(); ++i) {
    if (text[i] == '%' && i + 2 < text.size() && hex(text[i + 1]) >= 0 && hex(text[i + 2]) >= 0) {
      result += static_cast<char>(hex(text[i + 1]) * 16 + hex(text[i + 2]));
      i += 2;
    } else {
      result += text[i];
    }
  }
  return result;
}

}  // namespace

SchemaRefs::SchemaRefs(const JsonDocument& document) : document_(document) {
  using Type = JsonDocument::Type;
  by_uri_.emplace("", document.root());
  for (JsonId id = 0; id < document.size(); ++id) {  // parents come before their children
    if (document.at(id).type != Type::kObject) continue;
    for (const char* name : {"$id", "id"}) {
      const JsonId value = document.member(id, name);
      if (value == kNoJson || document.at(value).type != Type::kString) continue;
      const std::string& text = document.at(value).text;
      if (name[0] != '$' && !has_scheme(text) && text[0] != '#') continue;
      if (!text.empty() && text[0] == '#') {  // draft 4 to 7 anchors
        by_uri_.emplace(resolved(base_of(id), text), id);
        continue;
      }
      const std::string uri(without_fragment(resolved(base_of(id), text)));
      base_at_[id] = uri;
      by_uri_.emplace(uri, id);
    }
    for (const char* name : {"$anchor", "$dynamicAnchor"}) {
      const JsonId value = document.member(id, name);
      if (value == kNoJson || document.at(value).type != Type::kString) continue;
      by_uri_.emplace(base_of(id) + "#" + document.at(value).text, id);
    }
  }
}

std::string SchemaRefs::base_of(JsonId id) const {
  for (; id != kNoJson; id = document_.at(id).parent) {
    if (const auto found = base_at_.find(id); found != base_at_.end()) return found->second;
  }
  return "";
}

JsonId SchemaRefs::find(JsonId schema, std::string_view reference) const {
  const std::string uri = resolved(base_of(schema), reference);
  const std::string_view document_uri = without_fragment(uri);
  const std::string fragment =
      percent_decoded(std::string_view(uri).substr(std::min(uri.size(), document_uri.size() + 1)));
  if (!fragment.empty() && fragment[0] != '/') {
    const auto found = by_uri_.find(std::string(document_uri) + "#" + fragment);
    return found == by_uri_.end() ? kNoJson : found->second;
  }
  const auto found = by_uri_.find(std::string(document_uri));
  return found == by_uri_.end() ? kNoJson : document_.follow(found->second, fragment);
}

}  // namespace skein::grammar
