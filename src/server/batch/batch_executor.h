// BatchExecutor: runs the lines of batches at class LOW, in what capacity is left.
//
// A thread of its own asks the BatchRunner for lines, as many as may run at a time, and hands them
// to AnswerJob. Everything durable is the store's: a kill at any moment loses no finished line
// and gives no line two results.
#pragma once

#include <memory>

#include "server/context.h"

namespace skein {

class BatchExecutor {
 public:
  // `max_running`: lines at a time.
  BatchExecutor(ServerContext& context, size_t max_running);
  // Lines that run are cancelled and handed out again by the next server.
  ~BatchExecutor();

 private:
  class Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace skein
