// A cursor over untrusted little-endian bytes. No read goes past the end; each says what it wanted
// and what there was.
#pragma once

#include <bit>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>
#include <string_view>

#include "base/status.h"

namespace skein {

static_assert(std::endian::native == std::endian::little, "model files are read in place");

class ByteReader {
 public:
  explicit ByteReader(std::span<const std::byte> bytes) : bytes_(bytes) {}

  uint64_t offset() const { return offset_; }
  uint64_t remaining() const { return bytes_.size() - offset_; }

  template <class T>
  Result<T> number() {
    if (remaining() < sizeof(T)) return short_by(sizeof(T));
    T value;
    std::memcpy(&value, bytes_.data() + offset_, sizeof value);
    offset_ += sizeof value;
    return value;
  }

  Result<std::span<const std::byte>> take(uint64_t count) {
    if (remaining() < count) return short_by(count);
    const auto part = bytes_.subspan(offset_, count);
    offset_ += count;
    return part;
  }

  // A 64-bit length and that many bytes, as GGUF writes strings.
  Result<std::string_view> string(uint64_t limit) {
    SKEIN_ASSIGN(const uint64_t length, number<uint64_t>());
    if (length > limit) return out_of_range("a string of {} bytes, at most {}", length, limit);
    SKEIN_ASSIGN(const auto text, take(length));
    return std::string_view(reinterpret_cast<const char*>(text.data()), text.size());
  }

 private:
  Status short_by(uint64_t wanted) const {
    return data_loss("{} bytes needed at offset {}, {} left", wanted, offset_, remaining());
  }

  std::span<const std::byte> bytes_;
  uint64_t offset_ = 0;
};

}  // namespace skein
