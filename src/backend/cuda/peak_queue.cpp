#include "backend/cuda/peak_queue.h"

#include <bit>
#include <utility>

#include "backend/host/memory.h"
#include "base/check.h"

namespace skein::cuda {

Result<std::unique_ptr<PeakQueue>> CudaPeakQueue::make(size_t rows, size_t width, uint32_t searches,
                                                       cudaStream_t stream) {
  const size_t parts = rows * PeakScratch::parts_of(static_cast<uint32_t>(width));
  SKEIN_ASSIGN(Buffer memory,
               allocate_device((rows + parts) * sizeof(DevicePeak) + rows * sizeof(uint32_t)));
  return std::unique_ptr<PeakQueue>(
      new CudaPeakQueue(rows, width, searches, std::move(memory), stream));
}

CudaPeakQueue::CudaPeakQueue(size_t rows, size_t width, uint32_t searches, Buffer memory,
                             cudaStream_t stream)
    : rows_(rows),
      width_(width),
      stream_(stream),
      memory_(std::move(memory)),
      peaks_(reinterpret_cast<DevicePeak*>(raw(memory_))),
      searches_(searches) {
  scratch_.parts = peaks_ + rows;
  const size_t parts = rows * PeakScratch::parts_of(static_cast<uint32_t>(width));
  scratch_.searched = reinterpret_cast<uint32_t*>(scratch_.parts + parts);
  for (Search& search : searches_) {
    check(cudaEventCreateWithFlags(&search.found, cudaEventDisableTiming), "cudaEventCreate");
    static_cast<void>(search.copies.take(rows * sizeof(DevicePeak)));
  }
}

CudaPeakQueue::~CudaPeakQueue() {
  static_cast<void>(cudaStreamSynchronize(stream_));  // the device writes to what goes now
  for (const Search& search : searches_) static_cast<void>(cudaEventDestroy(search.found));
}

void CudaPeakQueue::find(Rows rows) {
  SKEIN_CHECK(holds(rows.rows, rows.width), "peaks of [{}, {}], [{}, {}] at most", rows.rows,
              rows.width, rows_, width_);
  SKEIN_CHECK(under_way_ < searches_.size(), "{} searches are under way", under_way_);
  Search& search = searches_[(oldest_ + under_way_) % searches_.size()];
  search.rows = rows.rows;
  find_peaks({raw(rows.data), static_cast<uint32_t>(rows.rows), static_cast<uint32_t>(rows.width),
              rows.stride},
             scratch_, peaks_,
             reinterpret_cast<DevicePeak*>(search.copies.take(rows_ * sizeof(DevicePeak))),
             stream_);
  check(cudaPeekAtLastError(), "peaks");
  check(cudaEventRecord(search.found, stream_), "peaks");
  ++under_way_;
}

void CudaPeakQueue::take(std::span<VocabularyScan::Argmax> out) {
  SKEIN_CHECK(under_way_ > 0 && searches_[oldest_].rows == out.size(), "{} peaks of {}", out.size(),
              searches_[oldest_].rows);
  Search& search = searches_[oldest_];
  oldest_ = (oldest_ + 1) % searches_.size();
  --under_way_;
  check(cudaEventSynchronize(search.found), "peaks");
  const auto* const found =
      reinterpret_cast<const DevicePeak*>(search.copies.take(rows_ * sizeof(DevicePeak)));
  for (size_t i = 0; i < out.size(); ++i) {
    out[i] = {found[i].index(), std::bit_cast<float>(found[i].value()), found[i].not_finite == 0};
  }
}

}  // namespace skein::cuda
