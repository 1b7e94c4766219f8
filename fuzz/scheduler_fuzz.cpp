// The simulator with every limit of the scheduler chosen by the input: configurations that nobody
// would think of, including those that create() must refuse.
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>

#include "sim/simulator.h"

namespace {

using namespace skein;  // NOLINT: a main file

// Reads numbers from the input, zeros after its end.
class Input {
 public:
  Input(const uint8_t* data, size_t size) : data_(data), size_(size) {}
  template <class T>
  T take() {
    T value{};
    const size_t n = size_ < sizeof(T) ? size_ : sizeof(T);
    if (n > 0) std::memcpy(&value, data_, n);
    data_ += n;
    size_ -= n;
    return value;
  }

 private:
  const uint8_t* data_;
  size_t size_;
};

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  Input in(data, size);
  sim::SimConfig config = sim::random_config(in.take<uint16_t>(), 150);
  SchedulerConfig& s = config.scheduler;
  config.faults.bits = in.take<uint16_t>();
  s.pool_blocks = in.take<uint8_t>() % 65;
  s.max_batch = in.take<uint8_t>() % 17;
  s.max_queue = in.take<uint8_t>() % 33;
  s.step_tokens = in.take<uint16_t>();
  s.max_context = in.take<uint16_t>();
  s.vocab_size = in.take<uint16_t>();
  s.depth = in.take<uint8_t>() % 4;
  s.us_per_class = in.take<int32_t>();
  s.inter_token_target_us = in.take<int16_t>();
  s.prefix_cache = (in.take<uint8_t>() & 1) != 0;
  config.target_live = in.take<uint8_t>() % 32;
  config.system_prompt_tokens = in.take<uint8_t>();
  config.max_prompt_tokens = 1U + in.take<uint8_t>();
  config.max_answer_tokens = 1U + in.take<uint8_t>() % 64;
  if (!ContinuousBatchingScheduler::create(s).ok()) return 0;
  const sim::SimReport report = sim::simulate(config);
  if (report.violation.empty()) return 0;
  std::fprintf(stderr, "violation: %s\n", report.violation.c_str());
  std::abort();
}
