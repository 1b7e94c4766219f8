// Jinja templates as Hugging Face's chat templates use them: Jinja2's language with trim_blocks,
// lstrip_blocks, loop controls, {% generation %}, raise_exception, strftime_now and Hugging Face's
// tojson, in an immutable sandbox. What Jinja2 would print is printed, byte for byte; what it would
// refuse is a Status with the line.
//
// A template is code from a stranger: parsing is bounded by the source's size and a nesting limit,
// rendering by Limits. A parsed Template never changes, so any number of threads may render it.
#pragma once

#include <cstdint>
#include <ctime>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/status.h"
#include "text/ordered_json.h"

namespace skein::jinja {

struct Limits {
  // Units of work: an expression, a scope that is searched for a name, 32 bytes that are copied.
  // About a tenth of a microsecond each.
  uint64_t steps = 4'000'000;
  uint64_t output_bytes = 16U << 20;
  uint64_t memory_bytes = 128U << 20;  // alive at one time, beyond the context, marks counted in
  uint32_t depth = 400;                // nested statements, expressions and macro calls
  std::function<bool()> expired;       // asked every thousand steps or so; true ends the render
                                       // (render_prompt of generate/ sets one)
};

// A piece of a rendered prompt. Control tokens may be read only from pieces with `from_template`.
struct Piece {
  std::string text;
  bool from_template = false;
};

struct Rendered {
  std::vector<Piece> pieces;  // neighbours differ in from_template; none is empty
  uint64_t steps = 0;         // what it cost

  std::string text() const;
};

struct RenderOptions {
  Limits limits;
  std::optional<std::tm> now;  // of strftime_now; without it the function is not defined
  // Variables with text that counts as the template's own (bos_token and the like). The context
  // may override one; it is the template's own still if the text is the same, else data.
  std::vector<std::pair<std::string, std::string>> template_variables;
  // Values of the key "role" that count as the template's own text, so that '<|' + role + '|>' is
  // one control token. Everything else in the context is data.
  std::vector<std::string> template_roles;
};

struct Program;

class Template {
 public:
  static constexpr size_t kMaxSourceBytes = 4U << 20;

  static Result<Template> parse(std::string_view source);

  // `context` is an object; its members are the template's variables.
  Result<Rendered> render(const OrderedJson& context, const RenderOptions& options = {}) const;

 private:
  explicit Template(std::shared_ptr<const Program> program) : program_(std::move(program)) {}
  std::shared_ptr<const Program> program_;
};

// The texts that a template can print by itself: what stands outside its tags, and its string
// literals. Of a source that cannot be read: the whole of it; of one that is too long: none.
std::vector<std::string> literals_of(std::string_view source);

}  // namespace skein::jinja
