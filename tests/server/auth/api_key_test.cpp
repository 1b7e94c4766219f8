#include "server/auth/api_key.h"

#include <fstream>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <iterator>
#include <set>

namespace skein {
namespace {

TEST(ApiKey, ParsesWhatItMakes) {
  const std::string id = make_key_id();
  const std::string secret = make_secret();
  EXPECT_EQ(secret.size(), 64U);  // 256 bits
  const std::string text = key_text(id, secret);
  const auto key = parse_key(text);
  ASSERT_TRUE(key.has_value());
  EXPECT_EQ(key->id, id);
  EXPECT_EQ(key->secret, secret);
  EXPECT_EQ(text.find_first_not_of("0123456789abcdefsk-"), std::string::npos);
}

TEST(ApiKey, RefusesEverythingElse) {
  const std::string good = key_text(make_key_id(), make_secret());
  std::string zero = good;
  zero[10] = '\0';
  std::string upper = good;
  upper.back() = 'F';
  for (const std::string& bad :
       {std::string(), std::string("sk-"), std::string("sk--"), good.substr(1), good + "0",
        good.substr(0, good.size() - 1), " " + good, zero, upper, "SK" + good.substr(2),
        std::string(good.size(), '-'), std::string(1 << 20, 's')}) {
    EXPECT_FALSE(parse_key(bad).has_value()) << bad.substr(0, 100);
  }
}

TEST(ApiKey, IdsAndSecretsDoNotRepeat) {
  std::set<std::string> all;
  for (int i = 0; i < 1000; ++i) {
    all.insert(make_key_id());
    all.insert(make_secret());
  }
  EXPECT_EQ(all.size(), 2000U);
}

TEST(ApiKey, OnlyTheSecretMatches) {
  const std::string secret = make_secret();
  const KeyDigest digest = digest_secret(secret);
  EXPECT_TRUE(matches(digest, secret));
  EXPECT_FALSE(matches(digest, ""));
  EXPECT_FALSE(matches(digest, secret + "0"));
  for (const size_t at : {size_t{0}, size_t{31}, size_t{63}}) {
    std::string wrong = secret;
    wrong[at] = wrong[at] == '0' ? '1' : '0';
    EXPECT_FALSE(matches(digest, wrong));
  }
}

TEST(ApiKey, TheSameSecretHasAnotherDigestEveryTime) {
  const std::string secret = make_secret();
  EXPECT_NE(digest_secret(secret).digest, digest_secret(secret).digest);
}

// The digest is what sha256sum says of 16 zero bytes and "abc".
TEST(ApiKey, TheDigestIsSha256OfSaltAndSecret) {
  const std::string expected = "277e7ff6d232b9763f4a66e8d05d210da32dac9c6dbce1026ad4cc98acb5fefe";
  KeyDigest digest;
  for (size_t i = 0; i < digest.digest.size(); ++i) {
    digest.digest[i] = static_cast<std::byte>(std::stoi(expected.substr(2 * i, 2), nullptr, 16));
  }
  EXPECT_TRUE(matches(digest, "abc"));
  EXPECT_FALSE(matches(digest, "abd"));
}

// Secrets must be compared in constant time: the one place that compares digests calls
// CRYPTO_memcmp, and nothing in auth/ compares them in another way.
TEST(ApiKey, DigestsAreComparedInConstantTime) {
  const auto source = [](const char* name) {
    std::ifstream file(std::string(SKEIN_SOURCE_DIR "/src/server/auth/") + name);
    return std::string(std::istreambuf_iterator<char>(file), {});
  };
  const std::string api_key = source("api_key.cpp");
  EXPECT_THAT(api_key, ::testing::HasSubstr("CRYPTO_memcmp("));
  for (const std::string& text : {api_key, source("key_ring.cpp")}) {
    for (const char* loose : {"std::memcmp", "std::equal", "digest ==", "digest !=", "secret =="}) {
      EXPECT_THAT(text, ::testing::Not(::testing::HasSubstr(loose)));
    }
  }
}

}  // namespace
}  // namespace skein
