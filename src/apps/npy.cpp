#include "apps/npy.h"

#include <bit>
#include <cerrno>
#include <cstdint>
#include <cstring>
#include <fcntl.h>
#include <fmt/format.h>
#include <string_view>
#include <unistd.h>
#include <utility>

namespace skein::apps {
namespace {

static_assert(std::endian::native == std::endian::little, "rows are written as they lie in memory");

constexpr std::string_view kMagic = "\x93NUMPY";
constexpr size_t kAlignment = 64;  // NumPy's own; it lets the rows be mapped

// Version 1.0: magic, version, length of the description, description, '\n' at a multiple of 64.
std::string make_header(size_t rows, size_t columns) {
  std::string header(kMagic);
  header += std::string_view("\x01\x00\x00\x00", 4);
  header +=
      fmt::format("{{'descr': '<f4', 'fortran_order': False, 'shape': ({}, {}), }}", rows, columns);
  header.resize((header.size() + kAlignment) / kAlignment * kAlignment, ' ');
  header.back() = '\n';
  const size_t length = header.size() - 10;
  header[8] = static_cast<char>(length & 0xff);
  header[9] = static_cast<char>(length >> 8);
  return header;
}

Status write_at(int fd, const std::string& path, const void* data, size_t bytes, size_t offset) {
  const auto* from = static_cast<const char*>(data);
  while (bytes > 0) {
    const ssize_t written = ::pwrite(fd, from, bytes, static_cast<off_t>(offset));
    if (written < 0 && errno == EINTR) continue;
    if (written <= 0) return data_loss("{} cannot be written: {}", path, std::strerror(errno));
    from += written;
    bytes -= static_cast<size_t>(written);
    offset += static_cast<size_t>(written);
  }
  return {};
}

}  // namespace

Result<NpyWriter> NpyWriter::create(const std::string& path, size_t rows, size_t columns) {
  NpyWriter writer;
  writer.path_ = path;
  writer.columns_ = columns;
  writer.fd_ = ::open(path.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0666);
  if (writer.fd_ < 0) return not_found("{} cannot be made: {}", path, std::strerror(errno));
  const std::string header = make_header(rows, columns);
  writer.header_bytes_ = header.size();
  SKEIN_TRY(write_at(writer.fd_, path, header.data(), header.size(), 0));
  return writer;
}

NpyWriter::NpyWriter(NpyWriter&& other) noexcept
    : path_(std::move(other.path_)),
      fd_(std::exchange(other.fd_, -1)),
      columns_(other.columns_),
      header_bytes_(other.header_bytes_) {}

NpyWriter::~NpyWriter() {
  if (fd_ >= 0) ::close(fd_);
}

Status NpyWriter::write_row(size_t row, std::span<const float> values) {
  SKEIN_CHECK(values.size() == columns_, "a row of {}, the matrix has {} columns", values.size(),
              columns_);
  return write_at(fd_, path_, values.data(), values.size_bytes(),
                  header_bytes_ + row * values.size_bytes());
}

Status NpyWriter::close() {
  if (::close(std::exchange(fd_, -1)) == 0) return {};
  return data_loss("{} cannot be written: {}", path_, std::strerror(errno));
}

Result<NpyMatrix> NpyMatrix::open(const std::string& path) {
  SKEIN_ASSIGN(MappedFile file, MappedFile::open(path));
  NpyMatrix matrix(std::move(file));
  const std::span<const std::byte> bytes = matrix.file_.bytes();
  const std::string_view text(reinterpret_cast<const char*>(bytes.data()), bytes.size());
  if (!text.starts_with(kMagic) || text.size() < 10 || text[6] != 1) {
    return invalid_argument("{} is no .npy file of version 1", path);
  }
  const size_t header =
      10 + static_cast<uint8_t>(text[8]) + 256 * size_t{static_cast<uint8_t>(text[9])};
  const std::string description(text.substr(10, header - 10));
  constexpr const char* kForm = "{'descr': '<f4', 'fortran_order': False, 'shape': (%zu, %zu)";
  if (std::sscanf(description.c_str(), kForm, &matrix.rows_, &matrix.columns_) != 2) {
    return invalid_argument("{} holds {}, not a float32 matrix in C order", path, description);
  }
  const size_t room = text.size() > header ? (text.size() - header) / sizeof(float) : 0;
  if (header % alignof(float) != 0 || matrix.columns_ == 0 ||
      room / matrix.columns_ < matrix.rows_) {
    return invalid_argument("{} has room for {} numbers, its shape is {} x {}", path, room,
                            matrix.rows_, matrix.columns_);
  }
  matrix.data_ = reinterpret_cast<const float*>(bytes.data() + header);
  return matrix;
}

}  // namespace skein::apps
