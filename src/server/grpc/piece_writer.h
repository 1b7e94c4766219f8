// Answers as GenerateResponses: the pieces of a stream, or one whole.
//
// A piece goes out when the text of all its tokens does: no character is half written then, and
// nothing is held back that may be the start of a stop text. So whoever has a piece can have the
// rest of the answer from another node, and the texts join.
#pragma once

#include <string>
#include <string_view>

#include "server/api/answer_writer.h"

namespace skein::rpc {

extern const api::AnswerKind kGenerateAnswer;

// A piece of a stream: its length in four bytes, then the message.
void append_piece(std::string& out, std::string_view message);
// Takes the first piece off; there is one.
std::string_view take_piece(std::string_view& pieces);

}  // namespace skein::rpc
