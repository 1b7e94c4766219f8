// The bytes of events, against what the documented structures come to in msgpack.
#include "server/kv_events/kv_event_message.h"

#include <gtest/gtest.h>
#include <nlohmann/json.hpp>
#include <vector>

namespace skein {
namespace {

using Json = nlohmann::json;

KvNotice stored(uint64_t hash, uint64_t parent, TokenId first) {
  KvNotice notice;
  notice.kind = KvNotice::Kind::kStored;
  notice.hash = hash;
  notice.parent_hash = parent;
  notice.salt = {0xab, 1};
  for (size_t i = 0; i < notice.tokens.size(); ++i) {
    notice.tokens[i] = first + static_cast<TokenId>(i);
  }
  return notice;
}

KvNotice removed(uint64_t hash) {
  KvNotice notice;
  notice.kind = KvNotice::Kind::kRemoved;
  notice.hash = hash;
  return notice;
}

Json tokens_from(TokenId first, int count) {
  Json tokens = Json::array();
  for (int i = 0; i < count; ++i) tokens.push_back(first + i);
  return tokens;
}

Json decoded(const std::vector<KvNotice>& notices, KvEventEncoding encoding) {
  return Json::from_msgpack(encode_kv_events(notices, encoding, 12.5));
}

const std::vector<KvNotice> kSome = {KvNotice{},
                                     stored(INT64_MAX, 0, 0),
                                     stored(300, INT64_MAX, 70'000),
                                     stored(4, 99, 100),
                                     removed(4),
                                     removed(300)};

TEST(KvEventMessage, Arrays) {
  const Json message = decoded(kSome, KvEventEncoding::kArray);
  ASSERT_EQ(message.size(), 3u);
  EXPECT_EQ(message[0], 12.5);
  EXPECT_EQ(message[2], 0);
  const Json& events = message[1];
  ASSERT_EQ(events.size(), 4u);
  EXPECT_EQ(events[0], Json::array({"AllBlocksCleared"}));
  Json both = tokens_from(0, 32);
  for (const Json& token : tokens_from(70'000, 32)) both.push_back(token);
  const Json salts = {{"0000000000000001"
                       "00000000000000ab"},
                      nullptr};
  EXPECT_EQ(
      events[1],
      Json::array(
          {"BlockStored", {INT64_MAX, 300}, nullptr, both, 32, nullptr, "GPU", nullptr, salts}))
      << "blocks of one text are one event";
  EXPECT_EQ(events[2], Json::array({"BlockStored", Json::array({4}), 99, tokens_from(100, 32), 32,
                                    nullptr, "GPU", nullptr, nullptr}));
  EXPECT_EQ(events[3], Json::array({"BlockRemoved", {4, 300}, "GPU"}));
}

TEST(KvEventMessage, Maps) {
  const Json events = decoded(kSome, KvEventEncoding::kMap)[1];
  ASSERT_EQ(events.size(), 4u);
  EXPECT_EQ(events[0], Json({{"type", "AllBlocksCleared"}}));
  EXPECT_EQ(events[1]["type"], "BlockStored");
  EXPECT_EQ(events[1]["block_hashes"], Json({INT64_MAX, 300}));
  EXPECT_EQ(events[1]["extra_keys"].size(), 2u);
  EXPECT_EQ(events[2], Json({{"type", "BlockStored"},
                             {"block_hashes", {4}},
                             {"parent_block_hash", 99},
                             {"token_ids", tokens_from(100, 32)},
                             {"block_size", 32},
                             {"lora_id", nullptr},
                             {"medium", "GPU"},
                             {"lora_name", nullptr}}));
  EXPECT_EQ(events[3],
            Json({{"type", "BlockRemoved"}, {"block_hashes", {4, 300}}, {"medium", "GPU"}}));
}

TEST(KvEventMessage, LongOnesHaveWideSizes) {
  std::vector<KvNotice> notices;
  for (uint64_t i = 1; i <= 3000; ++i) notices.push_back(stored(i, i - 1, 7));
  const Json events = decoded(notices, KvEventEncoding::kArray)[1];
  ASSERT_EQ(events.size(), 1u);
  EXPECT_EQ(events[0][1].size(), 3000u);
  EXPECT_EQ(events[0][3].size(), 3000u * kBlockTokens) << "beyond 16 bits";
  EXPECT_EQ(events[0][8].size(), 3000u);
}

// A router that keeps its tenants apart looks for its own name of them.
TEST(KvEventMessage, TenantsByTheNameThatARouterHas) {
  TenantNames names;
  names.add({0xab, 1}, "dynamo-cache-salt:alice");
  names.add({0xab, 2}, std::string(TenantNames::kMaxBytes + 1, 'x'));
  const auto extra = [&names](KvNotice notice) {
    const Json message = Json::from_msgpack(
        encode_kv_events(std::vector<KvNotice>{notice}, KvEventEncoding::kArray, 1, &names));
    return message[1][0][8];
  };
  KvNotice first = stored(7, 0, 1);
  EXPECT_EQ(extra(first), Json::parse(R"([["dynamo-cache-salt:alice"]])"));
  first.salt = {0xab, 2};
  EXPECT_EQ(extra(first), Json::parse(R"([["000000000000000200000000000000ab"]])"));
  for (uint64_t i = 0; i < TenantNames::kMaxNames; ++i) names.add({i, 99}, "another");
  EXPECT_EQ(names.find({0xab, 1}), "") << "the latest are kept";
}

}  // namespace
}  // namespace skein
