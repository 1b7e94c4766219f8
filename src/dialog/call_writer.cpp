#include "dialog/call_writer.h"

#include "dialog/json_scanner.h"

namespace skein::dialog {
namespace {

std::string_view trimmed_text(std::string_view text) {
  const size_t first = text.find_first_not_of(" \t\r\n");
  if (first == std::string_view::npos) return {};
  return text.substr(first, text.find_last_not_of(" \t\r\n") + 1 - first);
}

void append_json(const OrderedJson& value, bool ascii, std::string& out) {
  const char* between = "";
  if (value.is_object()) {
    out.push_back('{');
    for (const auto& [key, member] : value.items()) {
      out += between;
      out += OrderedJson(key).dump(-1, ' ', ascii, OrderedJson::error_handler_t::replace) + ": ";
      append_json(member, ascii, out);
      between = ", ";
    }
    out.push_back('}');
  } else if (value.is_array()) {
    out.push_back('[');
    for (const OrderedJson& item : value) {
      out += between;
      append_json(item, ascii, out);
      between = ", ";
    }
    out.push_back(']');
  } else {
    out += value.dump(-1, ' ', ascii, OrderedJson::error_handler_t::replace);
  }
}

std::string tag_value(const CallFormat& format, const OrderedJson& value) {
  if (value.is_string()) return value.get<std::string>();
  if (format.python_words && value.is_boolean()) return value.get<bool>() ? "True" : "False";
  if (format.python_words && value.is_null()) return "None";
  return spaced_json(value, format.ascii);
}

std::string tags(const CallFormat& format, const OrderedJson& arguments) {
  std::string out;
  for (const auto& [key, value] : arguments.items()) {
    const bool other = !value.is_string() && !format.key_end_other.empty();
    out += format.key_begin + key + (other ? format.key_end_other : format.key_end) +
           tag_value(format, value) + format.value_end;
  }
  return out;
}

// K='V', N=7 or K:<escape>V<escape>,N:7
void append_loose(const CallFormat& format, const OrderedJson& value, std::string& out) {
  const bool python = format.quote.empty();
  const char* between = "";
  if (value.is_string() && !python) {
    out += format.quote + value.get<std::string>() + format.quote;
  } else if (value.is_object() || value.is_array()) {
    out.push_back(value.is_object() ? '{' : '[');
    for (const auto& [key, member] : value.items()) {
      out += between;
      if (value.is_object()) {
        out += python ? spaced_json(key, false) + ": " : key + ":";
      }
      append_loose(format, member, out);
      between = python ? ", " : ",";
    }
    out.push_back(value.is_object() ? '}' : ']');
  } else if (python && value.is_boolean()) {
    out += value.get<bool>() ? "True" : "False";
  } else if (python && value.is_null()) {
    out += "None";
  } else {
    out += spaced_json(value, false);
  }
}

std::string assignments(const CallFormat& format, const OrderedJson& arguments) {
  std::string out;
  for (const auto& [key, value] : arguments.items()) {
    if (!out.empty()) out += format.quote.empty() ? ", " : ",";
    out += key + (format.quote.empty() ? "=" : ":");
    append_loose(format, value, out);
  }
  return out;
}

std::string arguments_text(const CallFormat& format, const ToolCall& call) {
  const OrderedJson arguments = parse_arguments(call.arguments);
  if (!arguments.is_object()) return call.arguments;
  if (format.shape == CallShape::kTagged) return tags(format, arguments);
  if (format.shape == CallShape::kLoose) return assignments(format, arguments);
  return spaced_json(arguments, format.ascii);
}

using Pieces = std::vector<jinja::Piece>;

void append_piece(Pieces& out, std::string_view text, bool ours) {
  if (text.empty()) return;
  if (out.empty() || out.back().from_template != ours) out.push_back({"", ours});
  out.back().text += text;
}

void write_call(const CallFormat& format, const ToolCall& call, size_t index, Pieces& out) {
  const std::string arguments = arguments_text(format, call);
  const bool own = arguments.empty() && !format.empty_body.empty();
  for (const char c : own ? format.empty_body : format.body) {
    if (c == kIndexPlace) {
      append_piece(out, std::to_string(index), true);
    } else if (c == kIdPlace) {
      append_piece(out, call.id, false);
    } else if (c == kNamePlace) {
      append_piece(out, call.name, false);
    } else if (c == kArgumentsPlace) {
      append_piece(out, arguments, false);
    } else {
      append_piece(out, {&c, 1}, true);
    }
  }
}

}  // namespace

std::string spaced_json(const OrderedJson& value, bool ascii) {
  std::string out;
  append_json(value, ascii, out);
  return out;
}

OrderedJson parse_arguments(std::string_view text) {
  OrderedJson none(OrderedJson::value_t::discarded);
  text = trimmed_text(text);
  if (text.empty()) return OrderedJson::object();
  if (text[0] != '{' || !is_whole_json(text)) return none;
  auto parsed = parse_ordered_json(text);
  auto* value = std::get_if<OrderedJson>(&parsed);
  return value != nullptr ? std::move(*value) : none;
}

Pieces write_call_pieces(const CallFormat& format, std::span<const ToolCall> calls) {
  Pieces out;
  append_piece(out, format.section_begin, true);
  for (size_t i = 0; i < calls.size(); ++i) {
    if (i > 0) append_piece(out, format.separator, true);
    append_piece(out, format.call_begin, true);
    write_call(format, calls[i], i, out);
    append_piece(out, format.call_end, true);
  }
  append_piece(out, format.section_end, true);
  return out;
}

std::string write_calls(const CallFormat& format, std::span<const ToolCall> calls) {
  std::string out;
  for (const jinja::Piece& piece : write_call_pieces(format, calls)) out += piece.text;
  return out;
}

}  // namespace skein::dialog
