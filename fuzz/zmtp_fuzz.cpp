// What a subscriber of KV events, or one who asks for them again, may send: in two pieces and at
// once it is the same, and whatever it is, little is kept of it.
#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <string>
#include <string_view>
#include <vector>

#include "server/kv_events/zmtp.h"

namespace {

struct Heard {
  explicit Heard(skein::ZmtpSocket socket) : session(socket) {
    handler.on_subscription = [this](std::string_view topic, bool wanted) {
      all.append(wanted ? "+" : "-").append(topic).append(";");
    };
    handler.on_message = [this](std::span<const std::string> frames) {
      for (const std::string& frame : frames) all.append(frame).append(",");
      all.append(";");
    };
  }
  bool take(std::string_view bytes) {
    for (; !bytes.empty(); bytes.remove_prefix(std::min(bytes.size(), size_t{1024}))) {
      if (!session.receive(bytes.substr(0, 1024), handler).ok()) return false;
    }
    return true;
  }

  skein::ZmtpSession session;
  skein::ZmtpSession::Handler handler;
  std::string all;
};

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  if (size < 2) return 0;
  const auto socket = data[0] % 2 == 0 ? skein::ZmtpSocket::kPub : skein::ZmtpSocket::kRouter;
  const std::string_view bytes(reinterpret_cast<const char*>(data) + 2, size - 2);
  const size_t cut = std::min<size_t>(data[1], bytes.size());
  Heard whole(socket);
  const bool took_whole = whole.take(bytes);
  Heard pieces(socket);
  const bool took_pieces = pieces.take(bytes.substr(0, cut)) && pieces.take(bytes.substr(cut));
  if (took_whole != took_pieces || whole.all != pieces.all) std::abort();
  if (whole.session.output().size() > skein::ZmtpSession::kMaxOutputBytes + 64) std::abort();
  return 0;
}
