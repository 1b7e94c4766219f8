#include "backend/cuda/device_step.h"

#include <algorithm>
#include <bit>
#include <cstring>

#include "backend/arithmetic.h"
#include "backend/cuda/tensor_attention.h"
#include "backend/host/memory.h"

namespace skein::cuda {
namespace {

constexpr size_t kAddressWords = sizeof(uintptr_t) / sizeof(uint32_t);

}  // namespace

DeviceStep::DeviceStep() {
  check(cudaEventCreateWithFlags(&copied_, cudaEventDisableTiming), "cudaEventCreate");
}

DeviceStep::~DeviceStep() {
  static_cast<void>(cudaEventSynchronize(copied_));
  static_cast<void>(cudaEventDestroy(copied_));
}

Step DeviceStep::begin(std::span<const TokenId> tokens, std::span<const Sequence> sequences,
                       std::span<const uint32_t> logit_rows, const DevicePeak* before,
                       cudaStream_t stream) {
  Step step = host_.begin(tokens, sequences, logit_rows);
  size_t blocks = 0;
  for (const Sequence& sequence : sequences) blocks += sequence.blocks.size();
  const size_t rows = tokens.size(), words = kAddressWords + 6 * rows + logit_rows.size() + blocks;
  check(cudaEventSynchronize(copied_), "a step before");
  const size_t room = (words + 3) / 4 * 4;
  auto* const record = reinterpret_cast<uint32_t*>(pinned_.take(room * sizeof(uint32_t)));
  pack(before, record);
  awaits_ = before != nullptr;
  auto* const to = reinterpret_cast<uint32_t*>(device_.take(room));
  take_up(record, to, words, stream);
  check(cudaPeekAtLastError(), "upload of a step");
  check(cudaEventRecord(copied_, stream), "upload of a step");
  const uint32_t* const device = to + kAddressWords;
  view_ = {reinterpret_cast<const DevicePeak* const*>(to),
           reinterpret_cast<const int32_t*>(device),
           device + rows,
           device + 2 * rows,
           device + 3 * rows,
           device + 4 * rows,
           device + 5 * rows,
           device + 6 * rows,
           device + 6 * rows + logit_rows.size()};
  step.own = this;
  return step;
}

uint32_t DeviceStep::spans() const {
  uint32_t last = 0;
  for (const uint32_t position : host_.positions) last = std::max(last, position);
  return static_cast<uint32_t>(last / arithmetic::kSpanTokens + 1);
}

bool DeviceStep::has_single_rows() const {
  return std::all_of(host_.sequences.begin(), host_.sequences.end(),
                     [](const Sequence& sequence) { return sequence.rows <= 1; });
}

bool DeviceStep::has_prompts(bool are_long) const {
  return std::any_of(host_.sequences.begin(), host_.sequences.end(), [&](const Sequence& sequence) {
    return sequence.rows > 0 &&
           is_long_prompt(sequence.rows, sequence.start + sequence.rows) == are_long;
  });
}

// In the order of StepView.
void DeviceStep::pack(const DevicePeak* before, uint32_t* record) const {
  const size_t rows = host_.tokens.size();
  const auto address = std::bit_cast<uintptr_t>(before);
  std::memcpy(record, &address, sizeof address);
  record += kAddressWords;
  for (const TokenId token : host_.tokens) *record++ = std::bit_cast<uint32_t>(token);
  record = std::copy(host_.positions.begin(), host_.positions.end(), record);
  uint32_t *writes = record, *first_blocks = record + rows;
  uint32_t *places = record + 2 * rows, *rows_left = record + 3 * rows;
  uint32_t first = 0;
  for (const Sequence& sequence : host_.sequences) {
    writes = std::fill_n(writes, sequence.rows, sequence.writes_kv ? 1 : 0);
    first_blocks = std::fill_n(first_blocks, sequence.rows, first);
    first += static_cast<uint32_t>(sequence.blocks.size());
    for (uint32_t i = 0; i < sequence.rows; ++i) {
      *places++ = i;
      *rows_left++ = sequence.rows - i;
    }
  }
  record = std::copy(host_.logit_rows.begin(), host_.logit_rows.end(), rows_left);
  for (const Sequence& sequence : host_.sequences) {
    for (const BlockId block : sequence.blocks) *record++ = block.value;
  }
}

}  // namespace skein::cuda
