// Backend memory, as those above backend/ see it: they take it, cut it into rows and hand rows to
// ops. What is in it they can only get by Backend::read() and give by Backend::write(): it may be
// another device's.
#pragma once

#include <cstddef>
#include <span>
#include <utility>

namespace skein {

// The place of some floats in backend memory; nullptr: nowhere.
class Floats {
 public:
  Floats() = default;
  Floats(std::nullptr_t) {}  // NOLINT: as a pointer
  explicit operator bool() const { return data_ != nullptr; }
  Floats operator+(size_t count) const { return Floats(data_ + count); }

 private:
  friend struct RawMemory;  // for backends: host/memory.h
  friend class Buffer;
  explicit Floats(float* data) : data_(data) {}

  float* data_ = nullptr;
};

// `rows` rows of `width` floats, `stride` floats apart. A part of the columns of a view is a view.
struct Rows {
  Floats data;
  size_t rows = 0;
  size_t width = 0;
  size_t stride = 0;

  Rows columns(size_t first, size_t count) const { return {data + first, rows, count, stride}; }
  Rows first(size_t count) const { return {data, count, width, stride}; }
};

// Rows that the process can read.
struct HostRows {
  const float* data = nullptr;
  size_t rows = 0;
  size_t width = 0;
  size_t stride = 0;

  std::span<const float> row(size_t i) const { return {data + i * stride, width}; }
};

// A piece of backend memory: zeroed, aligned to 64 bytes at least. Where the backend computes in
// the process's memory it is in huge pages if it is large and they can be had, and pages are taken
// when they are first touched.
class Buffer {
 public:
  using Free = void (*)(void* data, size_t bytes);
  Buffer() = default;
  Buffer(void* data, size_t bytes, Free free) : data_(data), bytes_(bytes), free_(free) {}
  Buffer(Buffer&& other) noexcept { swap(other); }
  Buffer& operator=(Buffer&& other) noexcept {
    Buffer(std::move(other)).swap(*this);
    return *this;
  }
  ~Buffer() {
    if (data_ != nullptr) free_(data_, bytes_);
  }

  Floats floats() const { return Floats(static_cast<float*>(data_)); }
  size_t bytes() const { return bytes_; }

 private:
  friend struct RawMemory;
  void swap(Buffer& other) {
    std::swap(data_, other.data_);
    std::swap(bytes_, other.bytes_);
    std::swap(free_, other.free_);
  }
  void* data_ = nullptr;
  size_t bytes_ = 0;
  Free free_ = nullptr;
};

}  // namespace skein
