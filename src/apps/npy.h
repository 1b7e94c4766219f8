// NumPy's .npy files of float32 matrices.
#pragma once

#include <cstddef>
#include <span>
#include <string>

#include "base/mapped_file.h"
#include "base/status.h"

namespace skein::apps {

// A [rows, columns] matrix that is written row by row, in any order.
class NpyWriter {
 public:
  static Result<NpyWriter> create(const std::string& path, size_t rows, size_t columns);
  NpyWriter(NpyWriter&& other) noexcept;
  NpyWriter& operator=(NpyWriter&&) = delete;
  ~NpyWriter();

  Status write_row(size_t row, std::span<const float> values);
  Status close();  // what could not be written shows here at the latest

 private:
  NpyWriter() = default;

  std::string path_;
  int fd_ = -1;
  size_t columns_ = 0;
  size_t header_bytes_ = 0;
};

// The same, opened for reading.
class NpyMatrix {
 public:
  // kInvalidArgument for what is no two-dimensional, C-ordered, little-endian float32 array whose
  // size is right.
  static Result<NpyMatrix> open(const std::string& path);

  size_t rows() const { return rows_; }
  size_t columns() const { return columns_; }
  std::span<const float> row(size_t i) const { return {data_ + i * columns_, columns_}; }

 private:
  explicit NpyMatrix(MappedFile file) : file_(std::move(file)) {}

  MappedFile file_;
  const float* data_ = nullptr;
  size_t rows_ = 0;
  size_t columns_ = 0;
};

}  // namespace skein::apps
