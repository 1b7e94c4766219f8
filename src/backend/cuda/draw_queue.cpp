#include "backend/cuda/draw_queue.h"

#include <algorithm>
#include <bit>
#include <cstring>
#include <utility>

#include "backend/host/memory.h"
#include "base/check.h"

namespace skein::cuda {

namespace {

// Memory given out piece by piece; where there is none yet, what the pieces take.
class Pieces {
 public:
  explicit Pieces(std::byte* memory) : memory_(memory) {}
  template <class T>
  void give(T*& piece, size_t count) {
    if (memory_ != nullptr) piece = reinterpret_cast<T*>(memory_ + used_);
    used_ += (count * sizeof(T) + 15) / 16 * 16;
  }
  size_t used() const { return used_; }

 private:
  std::byte* memory_;
  size_t used_ = 0;
};

}  // namespace

size_t CudaDrawQueue::lay_out(std::byte* memory) {
  Pieces pieces(memory);
  const auto width = static_cast<uint32_t>(width_);
  pieces.give(peaks_, rows_);
  pieces.give(scratch_.parts, rows_ * PeakScratch::parts_of(width));
  pieces.give(scratch_.searched, rows_);
  pieces.give(draws_, rows_);
  pieces.give(draw_scratch_.parts, rows_ * DrawScratch::parts_of(width));
  pieces.give(draw_scratch_.list, rows_ * DrawScratch::kMostListed);
  pieces.give(draw_scratch_.listed, rows_);
  return pieces.used();
}

Result<std::unique_ptr<DrawQueue>> CudaDrawQueue::make(size_t rows, size_t width, uint32_t searches,
                                                       cudaStream_t stream) {
  std::unique_ptr<CudaDrawQueue> queue(new CudaDrawQueue(rows, width, searches, stream));
  SKEIN_ASSIGN(queue->memory_, allocate_device(queue->lay_out(nullptr)));
  queue->lay_out(raw(queue->memory_));
  return std::unique_ptr<DrawQueue>(std::move(queue));
}

CudaDrawQueue::CudaDrawQueue(size_t rows, size_t width, uint32_t searches, cudaStream_t stream)
    : rows_(rows), width_(width), stream_(stream), searches_(searches + 1) {
  for (Search& search : searches_) {
    check(cudaEventCreate(&search.begun), "cudaEventCreate");
    check(cudaEventCreate(&search.found), "cudaEventCreate");
    // So that the time between any two can be asked for.
    check(cudaEventRecord(search.begun, stream_), "a step");
    check(cudaEventRecord(search.found, stream_), "peaks");
    static_cast<void>(search.copies.take(rows * sizeof(DevicePeak)));
    static_cast<void>(search.draws.take(rows * sizeof(Draw)));
  }
}

CudaDrawQueue::~CudaDrawQueue() {
  static_cast<void>(cudaStreamSynchronize(stream_));  // the device writes to what goes now
  for (const Search& search : searches_) {
    static_cast<void>(cudaEventDestroy(search.begun));
    static_cast<void>(cudaEventDestroy(search.found));
  }
}

void CudaDrawQueue::note_step() const {
  const Search& search = searches_[(oldest_ + under_way_) % searches_.size()];
  check(cudaEventRecord(search.begun, stream_), "a step");
}

void CudaDrawQueue::find(Rows rows, std::span<const Draw> draws) {
  SKEIN_CHECK(holds(rows.rows, rows.width), "peaks of [{}, {}], [{}, {}] at most", rows.rows,
              rows.width, rows_, width_);
  SKEIN_CHECK(draws.empty() || draws.size() == rows.rows, "{} draws from {} rows", draws.size(),
              rows.rows);
  SKEIN_CHECK(under_way_ + 1 < searches_.size(), "{} searches are under way", under_way_);
  Search& search = searches_[(oldest_ + under_way_) % searches_.size()];
  search.rows = rows.rows;
  const DeviceRows where{raw(rows.data), static_cast<uint32_t>(rows.rows),
                         static_cast<uint32_t>(rows.width), rows.stride};
  auto* const copies =
      reinterpret_cast<DevicePeak*>(search.copies.take(rows_ * sizeof(DevicePeak)));
  find_peaks(where, scratch_, peaks_, copies, stream_);
  check(cudaPeekAtLastError(), "peaks");
  if (std::any_of(draws.begin(), draws.end(), [](const Draw& d) { return d.temperature != 0; })) {
    std::byte* const up = search.draws.take(rows_ * sizeof(Draw));
    std::memcpy(up, draws.data(), draws.size_bytes());
    take_up(reinterpret_cast<const uint32_t*>(up), reinterpret_cast<uint32_t*>(draws_),
            draws.size_bytes() / sizeof(uint32_t), stream_);
    draw_from_rows(where, draws_, draw_scratch_, peaks_, copies, stream_);
    check(cudaPeekAtLastError(), "draws");
  }
  check(cudaEventRecord(search.found, stream_), "peaks");
  ++under_way_;
}

void CudaDrawQueue::take(std::span<VocabularyScan::Argmax> out) {
  SKEIN_CHECK(under_way_ > 0 && searches_[oldest_].rows == out.size(), "{} peaks of {}", out.size(),
              searches_[oldest_].rows);
  Search& search = searches_[oldest_];
  const Search& before = searches_[(oldest_ + searches_.size() - 1) % searches_.size()];
  oldest_ = (oldest_ + 1) % searches_.size();
  --under_way_;
  check(cudaEventSynchronize(search.found), "peaks");
  float pause_ms = 0;  // below 0 where the step was not noted
  check(cudaEventElapsedTime(&pause_ms, before.found, search.begun), "peaks");
  pause_ns_ = pause_ms > 0 ? static_cast<uint64_t>(pause_ms * 1e6F) : 0;
  const auto* const found =
      reinterpret_cast<const DevicePeak*>(search.copies.take(rows_ * sizeof(DevicePeak)));
  for (size_t i = 0; i < out.size(); ++i) {
    out[i] = {found[i].index(), std::bit_cast<float>(found[i].value()), found[i].not_finite == 0};
  }
}

}  // namespace skein::cuda
