// Tokens to a Program. Grammar and precedence are Jinja2's.
#pragma once

#include <memory>
#include <string_view>

#include "base/status.h"
#include "text/jinja/ast.h"

namespace skein::jinja {

// Errors begin with "line N: ".
Result<std::shared_ptr<const Program>> parse_program(std::string_view source);

}  // namespace skein::jinja
