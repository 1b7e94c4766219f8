// "a.b.0" as the attribute arguments of filters mean it.
#pragma once

#include <vector>

#include "text/jinja/runtime.h"

namespace skein::jinja {

class AttributePath {
 public:
  // A string, an integer or None (the item itself).
  static Result<AttributePath> parse(const Value& attribute);
  // "a.b,c": several paths.
  static Result<std::vector<AttributePath>> parse_list(Runtime& rt, const Value& attribute);

  // What an undefined step gives instead.
  void set_default(Value value) {
    default_ = std::move(value);
    has_default_ = true;
  }
  Result<Value> get(Runtime& rt, const Value& item) const;

 private:
  struct Part {
    std::string name;
    int64_t index = 0;
    bool is_index = false;
  };
  std::vector<Part> parts_;
  Value default_;
  bool has_default_ = false;
};

// Strings in lower case, everything else as it is.
Value ignore_case(Runtime& rt, const Value& value);

}  // namespace skein::jinja
