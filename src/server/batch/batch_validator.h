// Validates the inputs of batches on a thread of its own, one after the other: a file of 512 MiB
// takes seconds, in which neither other batches nor a server that stops may wait.
//
// The lines go into the database piece by piece, and the batch begins with the last of them. A
// process that dies before that has validated nothing: the next one discards the lines and starts
// over. A line that names a model which nobody serves has its result at once; one whose model goes
// later waits for a server that has it.
//
// Thread-safety: offer() and stop() on one thread.
#pragma once

#include <condition_variable>
#include <cstdint>
#include <functional>
#include <map>
#include <mutex>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <thread>
#include <utility>
#include <vector>

#include "base/status.h"
#include "server/store/batch_store.h"
#include "server/store/file_contents.h"
#include "server/store/store.h"

namespace skein {

inline constexpr size_t kMaxBatchLines = 50'000;
inline constexpr size_t kMaxLineBytes = size_t{8} << 20;  // the limit of a request's body

// A batch's input file is JSONL, one {custom_id, method, url, body} a line.
//
// What makes the file as a whole useless fails the batch, as OpenAI does: no line at all, too many
// lines, a custom_id that two lines share, a method or url that is not the batch's, or not one line
// that can be run. A line that is merely broken itself (no JSON, no custom_id, no body, too long)
// becomes a result with status 400 for that line, and the others run.
struct BatchInput {
  std::vector<InputLine> lines;
  std::vector<BatchError> errors;  // not empty: the batch fails; at most 100 are listed
};

// Reads the file once, a piece at a time. Fails only when it cannot be read, and with kUnavailable
// when `stop` says true, which is asked before every piece.
Result<BatchInput> read_batch_input(const FileReader& file, std::string_view endpoint,
                                    const std::function<bool()>& stop = {});

class BatchValidator {
 public:
  // The models that this server has, by their ids; any thread may ask.
  using Models = std::function<std::vector<std::string>()>;

  // The store outlives it. `done` is called on its thread after each batch.
  BatchValidator(Store& store, Models models, std::function<void()> done)
      : store_(store), models_(std::move(models)), done_(std::move(done)) {}
  ~BatchValidator() { stop(); }

  // A batch that is validating: it is taken when nothing else is being done. Whether it begins or
  // fails is written into its row; why neither was possible comes with the next offer.
  Status offer(const OpenBatch& batch);
  // Ends the thread within a piece of the file it reads.
  void stop();

 private:
  void run();
  Status validate(const OpenBatch& batch);
  Status insert(int64_t batch, std::span<const InputLine> lines);
  bool stopping();

  Store& store_;
  const Models models_;
  const std::function<void()> done_;
  std::mutex mutex_;
  std::condition_variable changed_;
  std::optional<OpenBatch> batch_;          // mutex_; what is to be done or being done
  std::map<std::string, Status> failures_;  // mutex_; by id
  bool stopping_ = false;                   // mutex_
  std::thread thread_;                      // since the first offer
};

}  // namespace skein
