// Builds safetensors bytes in memory, right ones and wrong ones.
#pragma once

#include <cstdint>
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <string>
#include <string_view>
#include <vector>

#include "format/gguf_writer.h"

namespace skein::testing {

// A file of this header and that many bytes of data; the length can be given instead of computed.
inline std::vector<std::byte> safetensors_bytes(std::string_view header, size_t data_bytes,
                                                std::optional<uint64_t> length = {}) {
  ByteWriter out;
  out.number<uint64_t>(length.value_or(header.size())).raw(header);
  for (size_t i = 0; i < data_bytes; ++i) out.number<uint8_t>(static_cast<uint8_t>(i * 11));
  return out.bytes();
}

class SafetensorsWriter {
 public:
  SafetensorsWriter& tensor(std::string_view name, std::string_view dtype,
                            const std::vector<uint64_t>& shape, std::span<const std::byte> data) {
    header_ +=
        fmt::format("{}\"{}\": {{\"dtype\": \"{}\", \"shape\": [{}], \"data_offsets\": [{}, {}]}}",
                    header_.empty() ? "" : ", ", name, dtype, fmt::join(shape, ", "),
                    data_.bytes().size(), data_.bytes().size() + data.size());
    data_.raw(data);
    return *this;
  }
  template <class T>
  SafetensorsWriter& tensor(std::string_view name, std::string_view dtype,
                            const std::vector<uint64_t>& shape, const std::vector<T>& values) {
    return tensor(name, dtype, shape, std::as_bytes(std::span(values)));
  }

  std::vector<std::byte> build() {
    ByteWriter out;
    out.string("{" + header_ + "}").raw(data_.bytes());
    return out.bytes();
  }

 private:
  std::string header_;
  ByteWriter data_;
};

}  // namespace skein::testing
