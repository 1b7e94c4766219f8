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
#include <functional>
#include <map>
#include <mutex>
#include <optional>
#include <span>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "server/batch/batch_input.h"
#include "server/store/store.h"

namespace skein {

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
