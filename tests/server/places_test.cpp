#include "server/http/places.h"

#include <gtest/gtest.h>

namespace skein::http {
namespace {

using enum PlaceState;

Address address(std::string_view text) {
  return parse_address(text).value();
}

class PlacesTest : public ::testing::Test {
 protected:
  std::unique_ptr<Places::Place> take(Places& places, std::string_view from, char name) {
    return places.take(address(from), [this, name] { left_.push_back(name); });
  }
  std::string left_;  // in order
};

TEST_F(PlacesTest, ThoseThatSentNothingGoFirstThenTheLongest) {
  Places places(100, {});
  auto a = take(places, "10.0.0.1", 'a'), b = take(places, "10.0.0.1", 'b'),
       c = take(places, "10.0.0.2", 'c'), d = take(places, "10.0.0.3", 'd'),
       e = take(places, "10.0.0.4", 'e');
  a->set(kBody);
  b->set(kHead);
  d->set(kServing);
  EXPECT_EQ(places.taken(), 5U);
  EXPECT_EQ(places.evict(3), 3U);
  EXPECT_EQ(left_, "ceb");
  EXPECT_EQ(places.evict(9), 1U) << "who is served stays";
  EXPECT_EQ(left_, "ceba");
  EXPECT_EQ(places.evict(9), 0U);
  EXPECT_EQ(places.taken(), 5U) << "until they are gone";
  d->set(kIdle);
  EXPECT_EQ(places.evict(9), 1U);
  c->set(kServing);  // too late for it
  a.reset(), c.reset();
  EXPECT_EQ(places.taken(), 3U);
}

TEST_F(PlacesTest, WaitingIsLimitedPerAddress) {
  Places places(2, {});
  auto a = take(places, "10.0.0.1", 'a'), b = take(places, "10.0.0.1", 'b'),
       other = take(places, "10.0.0.2", 'x');
  EXPECT_EQ(left_, "");
  auto c = take(places, "10.0.0.1", 'c');
  EXPECT_EQ(left_, "a") << "the newcomer stays";
  b->set(kServing);
  auto d = take(places, "::ffff:10.0.0.1", 'd');
  EXPECT_EQ(left_, "a") << "b does not wait";
  b->set(kIdle);
  EXPECT_EQ(left_, "ac");
  d->set(kBody);
  auto e = take(places, "10.0.0.1", 'e');
  EXPECT_EQ(left_, "acb");
  auto f = take(places, "10.0.0.1", 'f');
  EXPECT_EQ(left_, "acbe") << "d has sent more";
}

TEST_F(PlacesTest, AnIpv6NetworkIsOneClientAndAProxyIsMany) {
  Places places(1, {parse_address_range("192.168.0.0/16").value()});
  auto a = take(places, "2001:db8::1", 'a'), b = take(places, "2001:db8::2", 'b'),
       c = take(places, "2001:db8:0:1::1", 'c');
  EXPECT_EQ(left_, "a");
  auto p = take(places, "192.168.7.7", 'p'), q = take(places, "192.168.7.7", 'q');
  EXPECT_EQ(left_, "a");
  EXPECT_EQ(places.evict(9), 4U) << "when all places are taken, its connections go too";
}

TEST(AddressRange, IsAnAddressOrItsLeadingBits) {
  const auto holds = [](std::string_view range, std::string_view other) {
    return parse_address_range(range).value().contains(address(other));
  };
  EXPECT_TRUE(holds("10.1.2.3", "10.1.2.3"));
  EXPECT_TRUE(holds("10.1.2.3", "::ffff:10.1.2.3"));
  EXPECT_FALSE(holds("10.1.2.3", "10.1.2.4"));
  EXPECT_TRUE(holds("10.1.2.3/8", "10.200.0.1"));
  EXPECT_FALSE(holds("10.0.0.0/12", "10.16.0.1"));
  EXPECT_TRUE(holds("0.0.0.0/0", "1.2.3.4"));
  EXPECT_FALSE(holds("0.0.0.0/0", "2001:db8::1"));
  EXPECT_TRUE(holds("fd00::/8", "fdff::1"));
  EXPECT_FALSE(holds("fd00::/8", "fe00::1"));
  for (const char* bad : {"", "localhost", "10.0.0.0/33", "10.0.0.0/", "10.0.0.0/x", "::/129"}) {
    EXPECT_FALSE(parse_address_range(bad).ok()) << bad;
  }
}

}  // namespace
}  // namespace skein::http
