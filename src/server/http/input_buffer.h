// InputBuffer: the bytes that a connection has received and not used yet. Internal to http/.
//
// Memory follows what is unread, not what ever came: a client that always has the next request on
// its way never leaves the buffer empty. One thread.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>

namespace skein::http {

class InputBuffer {
 public:
  // Valid until the next append or consume.
  std::string_view unread() const { return std::string_view(bytes_).substr(begin_); }
  size_t capacity() const { return bytes_.capacity(); }

  void append(std::string_view bytes) { bytes_.append(bytes); }

  // Moving what is left costs no more than what was consumed before, so that a byte is moved once
  // on average.
  void consume(size_t bytes) {
    begin_ += bytes;
    if (begin_ == bytes_.size()) {
      bytes_.clear();
      begin_ = 0;
    } else if (begin_ >= kConsumed && begin_ >= bytes_.size() - begin_) {
      bytes_.erase(0, begin_);
      begin_ = 0;
    }
  }

  // Gives memory back where nothing is unread.
  void release_unused() {
    if (bytes_.empty()) bytes_.shrink_to_fit();
  }

 private:
  static constexpr size_t kConsumed = 64 << 10;  // that may stay in front of what is unread

  std::string bytes_;
  size_t begin_ = 0;
};

}  // namespace skein::http
