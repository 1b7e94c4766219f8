// Checks a batch's input file: JSONL, one {custom_id, method, url, body} a line.
//
// What makes the file as a whole useless fails the batch, as OpenAI does: no line at all, too many
// lines, a custom_id that two lines share, a method or url that is not the batch's, or not one line
// that can be run. A line that is merely broken itself (no JSON, no custom_id, no body, too long)
// becomes a result with status 400 for that line, and the others run.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "base/status.h"
#include "server/store/batch_store.h"
#include "server/store/file_folder.h"

namespace skein {

inline constexpr size_t kMaxBatchLines = 50'000;
inline constexpr size_t kMaxLineBytes = size_t{8} << 20;  // the limit of a request's body

struct BatchInput {
  std::vector<InputLine> lines;
  std::vector<BatchError> errors;  // not empty: the batch fails; at most 100 are listed
};

// Reads the file once, a piece at a time. Fails only when it cannot be read, and with kUnavailable
// when `stop` says true, which is asked before every piece.
Result<BatchInput> read_batch_input(const OwnedFd& file, std::string_view endpoint,
                                    const std::function<bool()>& stop = {});

}  // namespace skein
