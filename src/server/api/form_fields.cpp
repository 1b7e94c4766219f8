#include "server/api/form_fields.h"

#include <array>
#include <fmt/format.h>
#include <utility>

#include "grammar/json_schema.h"

namespace skein::api {
namespace {

using Kind = FormSpec::Kind;

constexpr size_t kMaxRelaxedBytes = 4'096;

// vLLM takes both kinds of grammar in one field; Lark's begins at a rule of this name.
bool is_lark(std::string_view text) {
  while (!text.empty()) {
    std::string_view line = text.substr(0, text.find('\n'));
    text.remove_prefix(std::min(text.size(), line.size() + 1));
    line.remove_prefix(std::min(line.size(), line.find_first_not_of(" \t?!")));
    if (!line.starts_with("start")) continue;
    line.remove_prefix(5);
    line.remove_prefix(std::min(line.size(), line.find_first_not_of(" \t.0123456789")));
    if (line.starts_with(':') && !line.starts_with("::=")) return true;
  }
  return false;
}

class FormReader {
 public:
  explicit FormReader(AnswerOptions& options) : options_(options) {}

  void add(const Fields& at, std::string_view name, FormSpec spec) {
    if (at.problem()) return;
    if (!options_.form) {
      options_.form = AskedForm{std::move(spec), at.path_of(name)};
    } else if (options_.form->spec != spec) {
      at.fail(name, fmt::format("It asks for another form than {} does; an answer has one.",
                                options_.form->field));
    }
  }

  // A schema, or its text.
  void add_schema(const Fields& at, std::string_view name, FormSpec spec) {
    const json::Value* schema = at.find(name);
    if (schema == nullptr) return;
    if (!schema->is_string() && !schema->is_object() && !schema->is_boolean()) {
      return at.fail(name, "A JSON Schema is expected here.");
    }
    spec.kind = Kind::kJsonSchema;
    spec.text = schema->is_string() ? schema->get<std::string>() : schema->dump();
    add(at, name, std::move(spec));
  }

  void add_text(const Fields& at, std::string_view name, Kind kind) {
    if (const auto text = at.string(name)) add(at, name, {kind, *text});
  }

  // GBNF or Lark.
  void add_grammar(const Fields& at, std::string_view name) {
    if (const auto text = at.string(name)) add(at, name, grammar_form(*text));
  }

  void add_choice(const Fields& at, std::string_view name) {
    if (!at.has(name)) return;
    FormSpec spec{.kind = Kind::kChoice};
    at.for_each(name, kMaxFormChoices, [&](const json::Value& item, const std::string& path) {
      if (item.is_string()) {
        spec.choices.push_back(item.get<std::string>());
      } else {
        at.problem() = invalid_field(path, "A string is expected here.");
      }
    });
    if (spec.choices.empty()) at.fail(name, "At least one text is needed.");
    add(at, name, std::move(spec));
  }

 private:
  AnswerOptions& options_;
};

void refuse(const Fields& at, std::string_view name, std::string_view what) {
  if (!at.problem()) at.problem() = not_supported(what, at.path_of(name));
}

// The white space between the parts of JSON, where a request names it.
std::optional<std::string> read_white_space(const Fields& at, std::string_view pattern) {
  auto text = at.string(pattern);
  if (!at.boolean("disable_any_whitespace").value_or(false)) return text;
  if (text && !text->empty()) at.fail(pattern, "disable_any_whitespace leaves none.");
  return "";
}

// Only one of vLLM's backends has options that are not read here.
void refuse_backend(const Fields& at, std::string_view name) {
  if (at.string(name).value_or("").starts_with("lm-format-enforcer")) {
    refuse(at, name, "A backend with options of its own");
  }
}

// {"type", ...}, with the schema beside the type or in a member of its own.
void read_response_format(const Fields& fields, std::string_view name, FormReader& reader) {
  const json::Value* format = fields.object(name);
  if (format == nullptr) return;
  const Fields inner(*format, fields.path_of(name), fields.problem());
  if (!inner.has("type")) return inner.missing("type");
  const auto type = inner.choice(
      "type", {"text", "json_object", "json_schema", "structural_tag", "regex", "grammar"});
  if (!type || *type == 0) return;
  if (*type > 2) return refuse(inner, "type", "This type of a format");
  const bool strict = inner.boolean("strict").value_or(false);
  if (*type == 1 && !inner.has("schema")) {
    return reader.add(fields, name, {.kind = Kind::kJsonObject});
  }
  const json::Value* named = *type == 2 ? inner.object("json_schema") : nullptr;
  if (named == nullptr) {
    if (!inner.has("schema")) return inner.missing("json_schema");
    return reader.add_schema(inner, "schema", {.strict = strict});
  }
  const Fields schema(*named, inner.path_of("json_schema"), fields.problem());
  schema.string("name", kMaxNameBytes);
  if (!schema.has("schema")) return schema.missing("schema");
  reader.add_schema(schema, "schema", {.strict = schema.boolean("strict").value_or(false)});
}

// vLLM's.
void read_structured_outputs(const Fields& fields, FormReader& reader) {
  const json::Value* outputs = fields.object("structured_outputs");
  if (outputs == nullptr) return;
  const Fields inner(*outputs, "structured_outputs", fields.problem());
  if (inner.has("structural_tag")) refuse(inner, "structural_tag", "A structural tag");
  refuse_backend(inner, "_backend");
  FormSpec json{.open = !inner.boolean("disable_additional_properties").value_or(true),
                .white_space = read_white_space(inner, "whitespace_pattern")};
  reader.add_schema(inner, "json", json);
  reader.add_text(inner, "regex", Kind::kRegex);
  reader.add_choice(inner, "choice");
  reader.add_grammar(inner, "grammar");
  if (inner.boolean("json_object").value_or(false)) {
    reader.add(inner, "json_object", std::move(json));
  }
}

// The old name of whitespace_pattern, for whatever JSON is asked for.
void set_white_space(const Fields& fields, AnswerOptions& options) {
  const auto white_space = read_white_space(fields, "guided_whitespace_pattern");
  if (!white_space || !options.form || options.form->spec.kind > Kind::kJsonSchema) return;
  auto& said = options.form->spec.white_space;
  if (said && said != white_space) {
    return fields.fail("guided_whitespace_pattern", "structured_outputs says something else.");
  }
  said = white_space;
}

}  // namespace

FormSpec grammar_form(std::string text) {
  const Kind kind = is_lark(text) ? Kind::kLark : Kind::kGbnf;
  return {kind, std::move(text)};
}

void read_form(const Fields& fields, AnswerOptions& options) {
  FormReader reader(options);
  read_response_format(fields, "response_format", reader);
  read_structured_outputs(fields, reader);
  reader.add_schema(fields, "guided_json", {});
  reader.add_text(fields, "guided_regex", Kind::kRegex);
  reader.add_choice(fields, "guided_choice");
  reader.add_grammar(fields, "guided_grammar");
  refuse_backend(fields, "guided_decoding_backend");
  reader.add_schema(fields, "json_schema", {});
  // llama.cpp's clients send an empty one for none.
  if (const auto text = fields.string("grammar"); text && !text->empty()) {
    reader.add(fields, "grammar", {Kind::kGbnf, *text});
  }
  if (fields.boolean("grammar_lazy").value_or(false)) {
    refuse(fields, "grammar_lazy", "A grammar that begins at a trigger");
  }
  reader.add_text(fields, "regex", Kind::kRegex);
  reader.add_text(fields, "ebnf", Kind::kGbnf);
  if (fields.has("structural_tag")) refuse(fields, "structural_tag", "A structural tag");
  set_white_space(fields, options);
}

void read_text_format(const Fields& text, AnswerOptions& options) {
  FormReader reader(options);
  read_response_format(text, "format", reader);
}

void read_output_format(const Fields& fields, AnswerOptions& options) {
  FormReader reader(options);
  const auto read_format = [&](const Fields& at, std::string_view name) {
    const json::Value* format = at.object(name);
    if (format == nullptr) return;
    const Fields inner(*format, at.path_of(name), fields.problem());
    if (!inner.has("type")) return inner.missing("type");
    if (!inner.choice("type", {"json_schema"})) return;
    if (!inner.has("schema")) return inner.missing("schema");
    reader.add_schema(inner, "schema", {.strict = true});
  };
  if (const json::Value* config = fields.object("output_config")) {
    read_format(Fields(*config, "output_config", fields.problem()), "format");
  }
  read_format(fields, "output_format");
}

std::string describe(const FormSpec& form) {
  std::string list;
  switch (form.kind) {
    case Kind::kJsonObject:
      return "Answer with a JSON object and nothing else.";
    case Kind::kJsonSchema:
      return "Answer with JSON that matches this JSON Schema, and with nothing else:\n" + form.text;
    case Kind::kRegex:
      return "Answer with a text that matches this regular expression, and with nothing else:\n" +
             form.text;
    case Kind::kChoice:
      for (const std::string& choice : form.choices) list.append("\n").append(choice);
      return "Answer with one of these texts, and with nothing else:" + list;
    case Kind::kGbnf:
    case Kind::kLark:
      break;
  }
  return "Answer with a text of this grammar, and with nothing else:\n" + form.text;
}

Error form_refused(const grammar::FormError& error, std::string_view field) {
  std::string param = std::string(field).append(error.where);
  if (error.where == grammar::kWhiteSpaceField) {  // beside the schema, and not in it
    const bool inside = field.starts_with("structured_outputs.");
    param = inside ? "structured_outputs.whitespace_pattern" : "guided_whitespace_pattern";
  }
  return {.status = 400,
          .message = error.message,
          .param = std::move(param),
          .code = std::string(grammar::form_code_name(error.code))};
}

Error constraint_conflict(std::string_view field) {
  return {.status = 400,
          .message = "The form allows only tokens here that logit_bias or other fields rule out.",
          .param = std::string(field),
          .code = "constraint_conflict"};
}

Error form_too_complex(std::string_view field, std::string_view why) {
  return {.status = 400,
          .message = std::string(why),
          .param = std::string(field),
          .code = "schema_too_complex"};
}

std::string relaxed_header(const std::vector<std::string>& pointers) {
  std::string out;
  for (size_t i = 0; i < pointers.size(); ++i) {
    std::string one;
    for (const char c : pointers[i]) {
      const bool plain = c > ' ' && c <= '~' && c != ',' && c != '%';
      one.append(plain ? std::string(1, c) : fmt::format("%{:02X}", static_cast<uint8_t>(c)));
    }
    if (one.empty()) one = "/";
    if (out.size() + one.size() > kMaxRelaxedBytes) {
      return out.append(fmt::format("{}and {} more", i > 0 ? ", " : "", pointers.size() - i));
    }
    out.append(i > 0 ? ", " : "").append(one);
  }
  return out;
}

}  // namespace skein::api
