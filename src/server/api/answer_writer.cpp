#include "server/api/answer_writer.h"

namespace skein::api {

Dialect dialect_of(AnswerForm form) {
  return form == AnswerForm::kMessage ? Dialect::kAnthropic : Dialect::kOpenAi;
}

std::string_view id_prefix(AnswerForm form) {
  switch (form) {
    case AnswerForm::kChat:
      return "chatcmpl-";
    case AnswerForm::kCompletion:
      return "cmpl-";
    case AnswerForm::kMessage:
      return "msg_";
  }
  return "";
}

std::string_view keepalive_frame(AnswerForm form) {
  return form == AnswerForm::kMessage ? "event: ping\ndata: {\"type\":\"ping\"}\n\n"
                                      : ": keepalive\n\n";
}

std::string error_frame(AnswerForm form, const Error& error) {
  std::string frame = form == AnswerForm::kMessage ? "event: error\ndata: " : "data: ";
  return frame.append(error_body(dialect_of(form), error)).append("\n\n");
}

std::unique_ptr<AnswerWriter> make_writer(const AnswerStart& start) {
  return start.form == AnswerForm::kMessage ? make_anthropic_writer(start)
                                            : make_openai_writer(start);
}

}  // namespace skein::api
