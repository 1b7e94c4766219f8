#include "base/status.h"

namespace skein {

std::string_view code_name(Code code) {
  switch (code) {
    case Code::kOk:
      return "ok";
    case Code::kInvalidArgument:
      return "invalid argument";
    case Code::kNotFound:
      return "not found";
    case Code::kAlreadyExists:
      return "already exists";
    case Code::kOutOfRange:
      return "out of range";
    case Code::kResourceExhausted:
      return "resource exhausted";
    case Code::kUnavailable:
      return "unavailable";
    case Code::kDeadlineExceeded:
      return "deadline exceeded";
    case Code::kUnimplemented:
      return "unimplemented";
    case Code::kDataLoss:
      return "data loss";
    case Code::kInternal:
      return "internal error";
  }
  return "unknown";
}

}  // namespace skein
