// What a client sees of a fault in the engine, and of models that take turns.
#include <atomic>
#include <cstdlib>
#include <fstream>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <map>
#include <set>
#include <thread>

#include "server/live_server.h"

namespace skein::testing {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

enum class Plant { kNan, kThrow };

// The real runner, but segments of a request whose prompt begins with '!' fail once it is armed.
class FaultyRunner final : public StepRunner {
 public:
  FaultyRunner(std::unique_ptr<StepRunner> real, Plant plant, const std::atomic<bool>& armed)
      : real_(std::move(real)), plant_(plant), armed_(armed) {}

  std::optional<SamplerScratch> patient_scratch() const override {
    return real_->patient_scratch();
  }
  void start(std::span<const Segment> segments,
             std::span<const RequestSampler* const> samplers) override {
    constexpr TokenId kMark = 3 + '!';
    for (const Segment& segment : segments) {
      if (segment.start == 0 && segment.tokens[0] == kMark) marked_.insert(segment.request.value);
    }
    segments_ = segments;
    real_->start(segments, samplers);
  }
  TimeUs finish(const StepOutput& output) override {
    const bool armed = armed_;
    const auto fails = [&](size_t i) {
      return armed && marked_.contains(segments_[i].request.value);
    };
    const TimeUs took = real_->finish(output);  // the step is over in either case
    for (size_t i = 0; i < segments_.size(); ++i) {
      if (!fails(i)) continue;
      if (plant_ == Plant::kThrow) throw std::runtime_error("planted fault");
      output.details[i].status = internal_error("the logit of token 7 is nan");
    }
    return took;
  }

 private:
  std::unique_ptr<StepRunner> real_;
  const Plant plant_;
  const std::atomic<bool>& armed_;
  std::set<uint64_t> marked_;
  std::span<const Segment> segments_;
};

SchedulerManager::Loader with_faults(SchedulerManager::Loader real, Plant plant,
                                     const std::atomic<bool>& armed) {
  return [real = std::move(real), plant, &armed](
             const ModelConfig& config,
             const SchedulerManager::MakeRoom& make_room) -> Result<ServedModelParts> {
    SKEIN_ASSIGN(ServedModelParts parts, real(config, make_room));
    parts.make_runner = [make = parts.make_runner, plant,
                         &armed]() -> Result<std::unique_ptr<StepRunner>> {
      SKEIN_ASSIGN(auto runner, make());
      return std::unique_ptr<StepRunner>(
          std::make_unique<FaultyRunner>(std::move(runner), plant, armed));
    };
    return parts;
  };
}

constexpr size_t kTokens = 400;  // still on their way when the fault comes

std::string stream_request(const std::string& prompt) {
  const Json body = {{"prompt", prompt},   {"max_tokens", kTokens}, {"temperature", 0},
                     {"ignore_eos", true}, {"stream", true},        {"return_token_ids", true}};
  return LiveServer::request("POST", "/v1/completions", "", "application/json", body.dump());
}

// The token ids of a stream's frames.
std::vector<int> tokens_of(const std::string& stream) {
  std::vector<int> tokens;
  size_t at = 0;
  while ((at = stream.find("data: {", at)) != std::string::npos) {
    const size_t end = stream.find("\n", at);
    const Json frame = Json::parse(stream.substr(at + 6, end - at - 6), nullptr, false);
    at = end;
    if (frame.is_discarded() || !frame.contains("choices") || frame["choices"].empty()) continue;
    const Json ids = frame["choices"][0].value("token_ids", Json());
    if (ids.is_array()) tokens.insert(tokens.end(), ids.begin(), ids.end());
  }
  return tokens;
}

class RowFaultTest : public ::testing::TestWithParam<Plant> {};

TEST_P(RowFaultTest, ItsClientGetsAnErrorFrameAndTheOthersTheirAnswers) {
  std::atomic<bool> armed = false;
  LiveServer live;
  live.change_loader = [&](SchedulerManager::Loader real) {
    return with_faults(std::move(real), GetParam(), armed);
  };
  live.start();
  const std::vector<std::string> prompts = {"one", "!two", "three", "four"};
  const auto begin = [&](const std::string& prompt) {
    RawClient client = live.client();
    EXPECT_TRUE(client.send(stream_request(prompt)));
    return client;
  };
  const auto whole = [](RawClient& client) {
    return client.read_until("\r\n0\r\n\r\n", 20'000);  // the last chunk
  };
  std::map<std::string, std::vector<int>> alone;
  for (const std::string& prompt : prompts) {
    if (prompt[0] == '!') continue;
    RawClient client = begin(prompt);
    alone[prompt] = tokens_of(whole(client));
    EXPECT_EQ(alone[prompt].size(), kTokens);
  }
  std::vector<RawClient> clients;
  for (const std::string& prompt : prompts) clients.push_back(begin(prompt));
  EXPECT_FALSE(clients[1].read_until("data: {", 20'000).empty());
  armed = true;  // its stream has begun: the failure must be said there
  for (size_t i = 0; i < prompts.size(); ++i) {
    const std::string stream = whole(clients[i]);
    if (prompts[i][0] == '!') {
      EXPECT_THAT(stream, HasSubstr("data: {\"error\":"));
      EXPECT_THAT(stream, HasSubstr("internal_error"));
      EXPECT_THAT(stream, Not(HasSubstr("[DONE]")));
      EXPECT_LT(tokens_of(stream).size(), kTokens);
    } else {
      EXPECT_THAT(stream, HasSubstr("[DONE]"));
      EXPECT_EQ(tokens_of(stream), alone[prompts[i]]) << prompts[i];
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Faults, RowFaultTest, ::testing::Values(Plant::kNan, Plant::kThrow),
                         [](const auto& info) {
                           return info.param == Plant::kNan ? "Nan" : "Throw";
                         });

// Two models, room for one, fifty clients: whoever is not served is refused by that policy alone.
TEST(ModelSwaps, UnderTheLoadOfFiftyClients) {
  LiveServer live;
  live.max_models = 1;
  live.start();
  const bool full = std::getenv("SKEIN_TEST_FULL") != nullptr;
  const uint64_t wanted_swaps = full ? 50 : 4;
  const auto resident = [] {
    std::ifstream statm("/proc/self/statm");
    uint64_t size = 0, pages = 0;
    statm >> size >> pages;
    return pages * 4096;
  };
  std::atomic<int> served{0}, refused{0};
  std::atomic<uint64_t> after_five{0};
  std::vector<std::thread> clients;
  for (int i = 0; i < 50; ++i) {
    clients.emplace_back([&, i] {
      for (int round = 0; live.models().stats().evictions < wanted_swaps && round < 100'000;
           ++round) {
        const char* model = (i + round) % 2 == 0 ? "tiny" : "org/other";
        const HttpAnswer answer = live.post(
            "/v1/completions", {{"model", model}, {"prompt", "hello"}, {"max_tokens", 3}});
        if (live.models().stats().evictions == 5) after_five = resident();
        if (answer.status == 200) {
          ++served;
          continue;
        }
        ++refused;
        ASSERT_EQ(answer.status, 503) << answer.text;
        ASSERT_EQ(answer.error_code(), "\"model_unavailable\"");
        std::this_thread::sleep_for(std::chrono::milliseconds(1 + i));
      }
    });
  }
  for (std::thread& client : clients) client.join();
  EXPECT_GE(live.models().stats().evictions, wanted_swaps);
  EXPECT_GE(served, 50);
  if (full) {
    EXPECT_LT(resident(), after_five + after_five / 20) << served << " served, " << refused;
  }
}

}  // namespace
}  // namespace skein::testing
