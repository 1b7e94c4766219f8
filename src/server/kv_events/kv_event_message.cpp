#include "server/kv_events/kv_event_message.h"

#include <bit>
#include <fmt/format.h>
#include <string_view>

#include "base/ids.h"

namespace skein {
namespace {

// The few types of msgpack that events have.
class MsgpackWriter {
 public:
  void nil() { byte(0xc0); }
  void number(uint64_t value) {
    if (value < 0x80) return byte(static_cast<uint8_t>(value));
    if (value <= UINT8_MAX) return big_endian(0xcc, value, 1);
    if (value <= UINT16_MAX) return big_endian(0xcd, value, 2);
    if (value <= UINT32_MAX) return big_endian(0xce, value, 4);
    big_endian(0xcf, value, 8);
  }
  void real(double value) { big_endian(0xcb, std::bit_cast<uint64_t>(value), 8); }
  void text(std::string_view value) {
    header(value.size(), 0xa0, 32, 0xda);
    bytes_.append(value);
  }
  void array(size_t size) { header(size, 0x90, 16, 0xdc); }
  void map(size_t size) { header(size, 0x80, 16, 0xde); }
  std::string take() { return std::move(bytes_); }

 private:
  void byte(uint8_t value) { bytes_.push_back(static_cast<char>(value)); }
  void big_endian(uint8_t type, uint64_t value, int bytes) {
    byte(type);
    for (int i = bytes - 1; i >= 0; --i) byte(static_cast<uint8_t>(value >> (8 * i)));
  }
  // Short ones have their size in the type; `wide` is the type with 16 bits, and 32 come next.
  void header(size_t size, uint8_t small, size_t small_sizes, uint8_t wide) {
    if (size < small_sizes) return byte(static_cast<uint8_t>(small | size));
    if (size <= UINT16_MAX) return big_endian(wide, size, 2);
    big_endian(wide + 1, size, 4);
  }

  std::string bytes_;
};

class EventWriter {
 public:
  EventWriter(MsgpackWriter& out, KvEventEncoding encoding, const TenantNames* names)
      : out_(out), as_map_(encoding == KvEventEncoding::kMap), names_(names) {}

  // Of consecutive blocks of one text.
  void stored(std::span<const KvNotice> blocks) {
    const bool has_salt = blocks[0].parent_hash == 0;
    begin("BlockStored", as_map_ && !has_salt ? 7 : 8);
    key("block_hashes");
    hashes(blocks);
    key("parent_block_hash");
    blocks[0].parent_hash == 0 ? out_.nil() : out_.number(blocks[0].parent_hash);
    key("token_ids");
    out_.array(blocks.size() * kBlockTokens);
    for (const KvNotice& block : blocks) {
      for (const TokenId token : block.tokens) out_.number(static_cast<uint64_t>(token));
    }
    key("block_size");
    out_.number(kBlockTokens);
    key("lora_id");
    out_.nil();
    key("medium");
    out_.text("GPU");
    key("lora_name");
    out_.nil();
    if (as_map_ && !has_salt) return;  // what is as by default is left out
    key("extra_keys");
    if (!has_salt) return out_.nil();
    out_.array(blocks.size());
    out_.array(1);
    out_.text(name_of(blocks[0].salt));
    for (size_t i = 1; i < blocks.size(); ++i) out_.nil();
  }

  void removed(std::span<const KvNotice> blocks) {
    begin("BlockRemoved", 2);
    key("block_hashes");
    hashes(blocks);
    key("medium");
    out_.text("GPU");
  }

  void cleared() { begin("AllBlocksCleared", 0); }

 private:
  std::string name_of(const Hash128& salt) const {
    std::string name = names_ != nullptr ? names_->find(salt) : std::string();
    return name.empty() ? fmt::format("{:016x}{:016x}", salt.high, salt.low) : name;
  }
  void begin(std::string_view type, size_t fields) {
    as_map_ ? out_.map(fields + 1) : out_.array(fields + 1);
    key("type");
    out_.text(type);
  }
  void key(std::string_view name) {
    if (as_map_) out_.text(name);
  }
  void hashes(std::span<const KvNotice> blocks) {
    out_.array(blocks.size());
    for (const KvNotice& block : blocks) out_.number(block.hash);
  }

  MsgpackWriter& out_;
  const bool as_map_;
  const TenantNames* const names_;
};

// How many of the first notices are one event.
size_t length_of_first(std::span<const KvNotice> notices) {
  const KvNotice::Kind kind = notices[0].kind;
  if (kind == KvNotice::Kind::kCleared) return 1;
  size_t length = 1;
  while (length < notices.size() && notices[length].kind == kind &&
         (kind == KvNotice::Kind::kRemoved ||
          notices[length].parent_hash == notices[length - 1].hash)) {
    ++length;
  }
  return length;
}

}  // namespace

std::string encode_kv_events(std::span<const KvNotice> notices, KvEventEncoding encoding,
                             double unix_time_s, const TenantNames* names) {
  size_t count = 0;
  for (auto rest = notices; !rest.empty(); rest = rest.subspan(length_of_first(rest))) ++count;
  MsgpackWriter out;
  EventWriter events(out, encoding, names);
  out.array(3);
  out.real(unix_time_s);
  out.array(count);
  for (auto rest = notices; !rest.empty();) {
    const size_t length = length_of_first(rest);
    const auto blocks = rest.first(length);
    switch (rest[0].kind) {
      case KvNotice::Kind::kCleared:
        events.cleared();
        break;
      case KvNotice::Kind::kStored:
        events.stored(blocks);
        break;
      case KvNotice::Kind::kRemoved:
        events.removed(blocks);
        break;
    }
    rest = rest.subspan(length);
  }
  out.number(0);  // the rank among engines that share a model's data: there is one
  return out.take();
}

}  // namespace skein
