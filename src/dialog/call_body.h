// Readers of one call's body: units in, the tool's name and its arguments as JSON text out.
//
// Until a reader has begun the call, what it takes may still turn out to be text; its caller keeps
// that. What a reader itself holds is bounded.
#pragma once

#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "dialog/arguments_reader.h"
#include "dialog/chat_format.h"
#include "dialog/units.h"

namespace skein::dialog {

// What a reader must keep of a call at most: arguments before the name, a value whose type the
// schema leaves open.
inline constexpr size_t kMaxHeldBytes = size_t{64} * 1024;

// What one unit has brought.
struct CallOutput {
  std::string name;  // of a call that has begun with it; else empty
  std::string arguments;
};

enum class ValueType : uint8_t { kString, kOther, kOpen };

// What the parser knows of the tools, for formats that write no types.
class ToolTypes {
 public:
  ToolTypes() = default;
  // Types are needed only where a format writes strings as they are.
  ToolTypes(const std::vector<Tool>& tools, bool with_types);
  bool has(std::string_view name) const { return tools_.contains(name); }
  // Where no tools are known any name may be one.
  bool may_be(std::string_view name) const { return tools_.empty() || has(name); }
  ValueType type(std::string_view tool, const std::string& key) const;

 private:
  using Types = std::map<std::string, ValueType>;  // by key
  std::map<std::string, Types, std::less<>> tools_;
};

class CallBody {
 public:
  virtual ~CallBody() = default;
  virtual Take take(Unit unit, CallOutput& out) = 0;
  // The answer ends here: whether the call is whole.
  virtual bool finish(CallOutput& out) = 0;
};

bool is_tool_name(std::string_view name);
// The inside of a JSON string.
void append_escaped(std::string_view text, std::string& out);

// `only_known`: nothing but JSON tells a call from text, so it must name one of the tools.
std::unique_ptr<CallBody> json_body(const CallFormat& format, const Markers& markers,
                                    const ToolTypes& tools, bool only_known);
std::unique_ptr<CallBody> name_json_body(const CallFormat& format, const Markers& markers);
std::unique_ptr<CallBody> tagged_body(const CallFormat& format, const Markers& markers,
                                      const ToolTypes& tools);
std::unique_ptr<CallBody> loose_body(const CallFormat& format, const Markers& markers,
                                     const ToolTypes& tools);

}  // namespace skein::dialog
