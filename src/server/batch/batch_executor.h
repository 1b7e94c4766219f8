// BatchExecutor: runs the lines of batches at class LOW, in what capacity is left.
//
// A thread of its own asks the BatchRunner for lines, as many as may run at a time, and hands them
// to AnswerJob. Everything durable is the store's: a kill at any moment loses no finished line
// and gives no line two results.
#pragma once

#include <memory>
#include <thread>

#include "server/batch/batch_runner.h"
#include "server/context.h"

namespace skein {

class BatchExecutor {
 public:
  // `max_running`: lines at a time.
  BatchExecutor(ServerContext& context, size_t max_running);
  ~BatchExecutor() { stop(); }

  void start();
  // The server drains: any thread.
  void wake();
  // Lines that run are cancelled and handed out again by the next server.
  void stop();

 private:
  void run();
  void begin(const BatchLine& line);

  ServerContext& context_;
  const size_t max_running_;
  const std::shared_ptr<BatchRunner>
      runner_;  // shared with the sinks of lines, which may outlive it
  std::thread thread_;
};

}  // namespace skein
