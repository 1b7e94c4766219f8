// The form that a request asks for its answer, in everybody's words: OpenAI's, llama.cpp's, vLLM's,
// SGLang's and Anthropic's.
#pragma once

#include "engine/forms/form.h"
#include "server/api/fields.h"

namespace skein::api {

// A request has one form: two fields that ask for different ones are an error, and so is a field
// that asks for something that cannot be enforced.
void read_form(const Fields& fields, AnswerOptions& options);
// A grammar in either of the ways that vLLM takes in one field: GBNF or Lark.
FormSpec grammar_form(std::string text);
inline constexpr size_t kMaxFormChoices = 100'000;
// The format of Responses' `text`.
void read_text_format(const Fields& text, AnswerOptions& options);
// Anthropic's output_config, which is always strict, and its name of the beta.
void read_output_format(const Fields& fields, AnswerOptions& options);

// The same in words for the model, which otherwise is not told: a paragraph of the system's
// message.
std::string describe(const FormSpec& form);

// Tells a client why its form is refused; `field` is where it stands in the request.
Error form_refused(const grammar::FormError& error, std::string_view field);
// Tells a client why an answer could not go on in its form.
Error constraint_conflict(std::string_view field);
Error form_too_complex(std::string_view field, std::string_view why);

// The header that names what of a schema is not enforced, as a list of JSON pointers: printable,
// and short however long they are.
std::string relaxed_header(const std::vector<std::string>& pointers);

}  // namespace skein::api
