#include "server/kv_events/zmtp.h"

#include <algorithm>
#include <array>

namespace skein {
namespace {

constexpr uint8_t kMore = 1;
constexpr uint8_t kLong = 2;
constexpr uint8_t kCommand = 4;

constexpr size_t kGreetingBytes = 64;
constexpr size_t kSignatureBytes = 10;
constexpr size_t kMechanismAt = 12;
constexpr size_t kMechanismBytes = 20;
constexpr char kMajorVersion = 3;
constexpr size_t kMaxPingContextBytes = 16;

// What a peer must begin with, and what we do: the signature, version 3.0, and no security.
std::string greeting() {
  std::string bytes(kGreetingBytes, '\0');
  bytes[0] = '\xff';
  bytes[kSignatureBytes - 1] = '\x7f';
  bytes[kSignatureBytes] = kMajorVersion;
  bytes.replace(kMechanismAt, 4, "NULL");
  return bytes;
}

void append_command(std::string& bytes, std::string_view name, std::string_view data) {
  bytes.push_back(static_cast<char>(kCommand));
  bytes.push_back(static_cast<char>(1 + name.size() + data.size()));
  bytes.push_back(static_cast<char>(name.size()));
  bytes.append(name).append(data);
}

uint64_t big_endian(std::string_view bytes) {
  uint64_t value = 0;
  for (const char c : bytes) value = value << 8 | static_cast<uint8_t>(c);
  return value;
}

std::string metadata_of(ZmtpSocket socket) {
  const std::string_view type = socket == ZmtpSocket::kPub ? "PUB" : "ROUTER";
  std::string bytes = "\x0bSocket-Type";
  bytes.append({'\0', '\0', '\0', static_cast<char>(type.size())});
  return bytes.append(type);
}

// Names are not told apart by their case.
bool is_socket_type(std::string_view name) {
  constexpr std::string_view kName = "socket-type";
  return std::equal(name.begin(), name.end(), kName.begin(), kName.end(), [](char a, char b) {
    return (a >= 'A' && a <= 'Z' ? static_cast<char>(a | 0x20) : a) == b;
  });
}

bool may_talk_to(ZmtpSocket socket, std::string_view type) {
  if (socket == ZmtpSocket::kPub) return type == "SUB" || type == "XSUB";
  return type == "REQ" || type == "DEALER" || type == "ROUTER";
}

}  // namespace

void append_zmtp_frame(std::string& bytes, std::string_view body, bool more) {
  const bool is_long = body.size() > UINT8_MAX;
  bytes.push_back(static_cast<char>((more ? kMore : 0) | (is_long ? kLong : 0)));
  for (int i = is_long ? 7 : 0; i >= 0; --i) {
    bytes.push_back(static_cast<char>(uint64_t{body.size()} >> (8 * i)));
  }
  bytes.append(body);
}

ZmtpSession::ZmtpSession(ZmtpSocket socket) : socket_(socket), output_(greeting()) {}

Status ZmtpSession::receive(std::string_view bytes, const Handler& handler) {
  input_.append(bytes);
  if (stage_ == Stage::kGreeting) {
    SKEIN_TRY(take_greeting());
    if (stage_ == Stage::kGreeting) return {};
  }
  while (true) {
    SKEIN_ASSIGN(const bool taken, take_frame(handler));
    if (!taken) return {};
    if (output_.size() > kMaxOutputBytes) {
      return resource_exhausted("{} bytes of answers are not read, at most {}", output_.size(),
                                kMaxOutputBytes);
    }
  }
}

// Whoever cannot speak so is refused as soon as that is plain.
Status ZmtpSession::take_greeting() {
  const std::string wanted = greeting();
  const size_t seen = std::min(input_.size(), kGreetingBytes);
  for (size_t i = 0; i < seen; ++i) {
    const bool is_padding = i > 0 && i < kSignatureBytes - 1;
    const bool is_rest = i == kSignatureBytes + 1 || i >= kMechanismAt + kMechanismBytes;
    if (is_padding || is_rest || input_[i] == wanted[i]) continue;
    if (i == kSignatureBytes && static_cast<uint8_t>(input_[i]) > kMajorVersion) continue;
    return invalid_argument("byte {} of the greeting is {:#04x}, not {:#04x}: no ZMTP 3 with NULL",
                            i, static_cast<uint8_t>(input_[i]), static_cast<uint8_t>(wanted[i]));
  }
  if (seen < kGreetingBytes) return {};
  input_.erase(0, kGreetingBytes);
  stage_ = Stage::kHandshake;
  append_command(output_, "READY", metadata_of(socket_));
  return {};
}

Result<bool> ZmtpSession::take_frame(const Handler& handler) {
  if (input_.empty()) return false;
  const auto flags = static_cast<uint8_t>(input_[0]);
  if ((flags & ~(kMore | kLong | kCommand)) != 0 ||
      (flags & (kMore | kCommand)) == (kMore | kCommand)) {
    return invalid_argument("a frame has the flags {:#04x}", flags);
  }
  const size_t head = (flags & kLong) != 0 ? 9 : 2;
  if (input_.size() < head) return false;
  const uint64_t size = big_endian(std::string_view(input_).substr(1, head - 1));
  if (size > kMaxFrameBytes) {
    return invalid_argument("a frame of {} bytes, at most {}", size, kMaxFrameBytes);
  }
  if (input_.size() < head + size) return false;
  const std::string body = input_.substr(head, size);
  input_.erase(0, head + size);
  if ((flags & kCommand) != 0) {
    SKEIN_TRY(take_command(body, handler));
    return true;
  }
  if (stage_ != Stage::kReady) return invalid_argument("a message before the handshake's end");
  if (frames_.size() == kMaxFrames)
    return invalid_argument("a message of more than {} frames", kMaxFrames);
  take_message(body, (flags & kMore) != 0, handler);
  return true;
}

Status ZmtpSession::take_command(std::string_view body, const Handler& handler) {
  const size_t length = body.empty() ? 0 : static_cast<uint8_t>(body[0]);
  if (length == 0 || length + 1 > body.size()) return invalid_argument("a command without a name");
  const std::string_view name = body.substr(1, length);
  const std::string_view data = body.substr(1 + length);
  if (stage_ == Stage::kHandshake) {
    if (name == "READY") return take_ready(data);
    return invalid_argument("the handshake begins with another command");
  }
  // After two bytes of a lifetime comes what is to be sent back.
  if (name == "PING") {
    if (data.size() < 2) return invalid_argument("a PING of {} bytes", data.size());
    append_command(output_, "PONG", data.substr(2, kMaxPingContextBytes));
  } else if (socket_ == ZmtpSocket::kPub && (name == "SUBSCRIBE" || name == "CANCEL")) {
    handler.on_subscription(data, name == "SUBSCRIBE");
  } else if (name == "ERROR") {
    return invalid_argument("the peer says that it cannot go on");
  }
  return {};  // others are for later versions
}

Status ZmtpSession::take_ready(std::string_view metadata) {
  std::string_view type;
  while (!metadata.empty()) {
    const size_t name = static_cast<uint8_t>(metadata[0]);
    if (metadata.size() < 1 + name + 4) return invalid_argument("metadata that ends early");
    const uint64_t value = big_endian(metadata.substr(1 + name, 4));
    if (metadata.size() - (1 + name + 4) < value)
      return invalid_argument("metadata that ends early");
    if (is_socket_type(metadata.substr(1, name))) type = metadata.substr(1 + name + 4, value);
    metadata = metadata.substr(1 + name + 4 + value);
  }
  if (!may_talk_to(socket_, type)) {
    return invalid_argument("a peer of the wrong type for {}",
                            socket_ == ZmtpSocket::kPub ? "PUB" : "ROUTER");
  }
  stage_ = Stage::kReady;
  return {};
}

// A subscription is a message of one frame that begins with 1, its end one that begins with 0.
void ZmtpSession::take_message(std::string_view body, bool more, const Handler& handler) {
  if (socket_ == ZmtpSocket::kPub) {
    const bool is_subscription =
        !more && frames_.empty() && !body.empty() && static_cast<uint8_t>(body[0]) <= 1;
    if (is_subscription) handler.on_subscription(body.substr(1), body[0] == 1);
    return;
  }
  frames_.emplace_back(body);
  if (more) return;
  handler.on_message(frames_);
  frames_.clear();
}

}  // namespace skein
