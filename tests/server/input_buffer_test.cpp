#include "server/http/input_buffer.h"

#include <gtest/gtest.h>

namespace skein::http {
namespace {

// Pipelining: each read brings the end of one request and the beginning of the next.
TEST(InputBuffer, MemoryStaysBoundedWhereItIsNeverWhollyRead) {
  constexpr size_t kRead = 4096, kRequest = 441;
  constexpr size_t kReads = 20'000;  // 80 MB in all
  InputBuffer buffer;
  std::string read(kRead, ' ');
  size_t written = 0, taken = 0;
  for (size_t i = 0; i < kReads; ++i) {
    for (char& c : read) c = static_cast<char>(written++ % 251);
    buffer.append(read);
    while (buffer.unread().size() > kRequest) {
      ASSERT_EQ(buffer.unread().front(), static_cast<char>(taken % 251)) << taken;
      buffer.consume(kRequest);
      taken += kRequest;
    }
  }
  EXPECT_EQ(buffer.unread().size(), written - taken);
  EXPECT_LE(buffer.capacity(), 256U << 10);
}

// A body whose sink is slower than the network.
TEST(InputBuffer, MemoryFollowsWhatIsUnread) {
  constexpr size_t kAhead = 256 << 10;
  InputBuffer buffer;
  buffer.append(std::string(kAhead, 'x'));
  for (size_t i = 0; i < 10'000; ++i) {
    buffer.append(std::string(1000, 'x'));
    buffer.consume(1000);
    ASSERT_EQ(buffer.unread().size(), kAhead);
  }
  EXPECT_LE(buffer.capacity(), 5 * kAhead);
  buffer.consume(kAhead);
  buffer.release_unused();
  EXPECT_LE(buffer.capacity(), 64U);
}

}  // namespace
}  // namespace skein::http
