#include "text/jinja/attribute_path.h"

#include <algorithm>

#include "text/jinja/literals.h"
#include "text/jinja/natives.h"

namespace skein::jinja {

Result<AttributePath> AttributePath::parse(const Value& attribute) {
  AttributePath path;
  if (attribute.is_none()) return path;
  if (attribute.is_integral()) {
    path.parts_.push_back({"", attribute.as_int(), true});
    return path;
  }
  SKEIN_ASSIGN(const MarkedText* text, expect_string(attribute, "the attribute"));
  const std::string& bytes = text->bytes();
  for (size_t begin = 0; begin <= bytes.size();) {
    const size_t end = std::min(bytes.find('.', begin), bytes.size());
    Part part;
    part.name = bytes.substr(begin, end - begin);
    part.is_index = !part.name.empty() &&
                    part.name.find_first_not_of("0123456789") == std::string::npos &&
                    parse_int(part.name, 10, part.index) == ParseNumber::kOk;
    path.parts_.push_back(std::move(part));
    begin = end + 1;
  }
  return path;
}

Result<std::vector<AttributePath>> AttributePath::parse_list(Runtime& rt, const Value& attribute) {
  std::vector<AttributePath> paths;
  if (!attribute.is_string()) {
    SKEIN_ASSIGN(AttributePath path, parse(attribute));
    paths.push_back(std::move(path));
    return paths;
  }
  const MarkedText& text = attribute.text();
  for (size_t begin = 0; begin <= text.size();) {
    const size_t end = std::min(text.bytes().find(',', begin), text.size());
    SKEIN_ASSIGN(AttributePath path, parse(rt.string(text.slice(begin, end))));
    paths.push_back(std::move(path));
    begin = end + 1;
  }
  return paths;
}

Result<Value> AttributePath::get(Runtime& rt, const Value& item) const {
  Value value = item;
  for (const Part& part : parts_) {
    SKEIN_TRY(rt.spend(1));
    const Value key = part.is_index ? Value::integer(part.index) : rt.string(part.name, true);
    SKEIN_ASSIGN(value, get_item(rt, value, key));
    if (has_default_ && value.is_undefined()) value = default_;
  }
  return value;
}

Value ignore_case(Runtime& rt, const Value& value) {
  return value.is_string() ? rt.string(change_case(value.text(), false)) : value;
}

}  // namespace skein::jinja
