// ZMTP 3.0 with the NULL mechanism, as a PUB or a ROUTER socket of ZeroMQ speaks it: what one peer
// sends, taken apart. No sockets in here.
//
// Peers may be anyone: what they send is small or they are refused, and nothing of it is kept but
// what a message needs that has begun.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/status.h"

namespace skein {

enum class ZmtpSocket : uint8_t { kPub, kRouter };

// A frame of a message that we send. Short, or with a size of eight bytes.
void append_zmtp_frame(std::string& bytes, std::string_view body, bool more);

class ZmtpSession {
 public:
  // Longest frame and most frames of a message that a peer may send.
  static constexpr size_t kMaxFrameBytes = 1024;
  static constexpr size_t kMaxFrames = 8;
  static constexpr size_t kMaxOutputBytes = 4096;  // beyond: it asks and does not read

  // Of a PUB: `topic` is begun to be wanted, or is no longer. Of a ROUTER: a whole message.
  struct Handler {
    std::function<void(std::string_view topic, bool wanted)> on_subscription;
    std::function<void(std::span<const std::string> frames)> on_message;
  };

  explicit ZmtpSession(ZmtpSocket socket);

  // Takes what came, in any pieces. Not ok: this peer is to be closed.
  Status receive(std::string_view bytes, const Handler& handler);
  bool is_ready() const { return stage_ == Stage::kReady; }
  // The handshake and answers to commands, to be sent between messages; the caller takes them out.
  std::string& output() { return output_; }
  bool has_output() const { return !output_.empty(); }

 private:
  enum class Stage : uint8_t { kGreeting, kHandshake, kReady };

  Status take_greeting();
  // False: a frame has begun and is not whole.
  Result<bool> take_frame(const Handler& handler);
  Status take_command(std::string_view body, const Handler& handler);
  Status take_ready(std::string_view metadata);
  void take_message(std::string_view body, bool more, const Handler& handler);

  const ZmtpSocket socket_;
  Stage stage_ = Stage::kGreeting;
  std::string input_;
  std::vector<std::string> frames_;
  std::string output_;
};

}  // namespace skein
