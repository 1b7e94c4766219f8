// Answers as events that are written down, and what the writers make of them.
#pragma once

#include <gtest/gtest.h>
#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "engine/models.h"
#include "engine/tiny_model.h"
#include "server/api/answer_writer.h"
#include "server/json.h"

namespace skein::api::testing {

using Json = json::Value;
using Events = std::vector<AnswerEvent>;

inline const Tokenizer& bytes_tokenizer() {
  static const skein::testing::TestFolder folder;
  static const LoadedTokenizer loaded =
      skein::testing::load(skein::testing::write_tiny_model(folder));
  return loaded.tokenizer;
}

inline const std::vector<TokenId> kOneToken = {'a'};

inline AnswerEvent text(std::string_view of) {
  return AnswerContent{of, kOneToken, {}};
}
inline AnswerEvent thought(std::string_view of) {
  return AnswerReasoning{of, kOneToken};
}
inline AnswerEvent call(uint32_t index, std::string_view id, std::string_view name,
                        bool custom = false) {
  return AnswerCallBegin{index, id, name, custom, kOneToken};
}
inline AnswerEvent arguments(uint32_t index, std::string_view of) {
  return AnswerArguments{index, of, kOneToken};
}
inline AnswerEvent call_end(uint32_t index) {
  return AnswerCallEnd{index, kOneToken};
}
inline AnswerEvent ended(FinishReason reason, std::string_view stop = {}) {
  AnswerEnd end{{}, stop};
  end.how.reason = reason;
  return end;
}

// Tells a writer what happens; without an end the answer is left in the middle.
class Told {
 public:
  Told(const AnswerKind& kind, bool stream, AnswerOptions wanted = {}) {
    wanted.stream = stream;
    SamplingParams sampling;
    sampling.temperature = 0.7F;
    sampling.top_p = 0.95F;
    writer = kind.make_writer({.identity = {"resp_f00d", 17, "org/model"},
                               .wanted = wanted,
                               .tokenizer = bytes_tokenizer(),
                               .sampling = sampling});
  }
  Told& tell(const Events& events) {
    const Figures now{{10, 4, 8, 3}, {}};
    for (const AnswerEvent& event : events) {
      if (const auto* end = std::get_if<AnswerEnd>(&event)) {
        writer->finish(out, 0, *end, now);
        writer->end(out, now);
      } else {
        std::visit(
            [&](const auto& part) {
              if constexpr (requires { writer->write(out, 0, part, now); }) {
                writer->write(out, 0, part, now);
              }
            },
            event);
      }
    }
    return *this;
  }

  std::unique_ptr<AnswerWriter> writer;
  std::string out;
};

inline std::string written(const AnswerKind& kind, bool stream, const Events& events,
                           const AnswerOptions& wanted = {}) {
  return Told(kind, stream, wanted).tell(events).out;
}

// The data of each frame, whose event is its type.
inline std::vector<Json> frames_of(const std::string& stream) {
  std::vector<Json> frames;
  for (size_t at = 0; at < stream.size();) {
    const size_t end = stream.find("\n\n", at);
    const std::string frame = stream.substr(at, end - at);
    const size_t data = frame.find("\ndata: ");
    EXPECT_TRUE(frame.starts_with("event: ") && data != std::string::npos) << frame;
    frames.push_back(Json::parse(frame.substr(data + 7)));
    EXPECT_EQ(frames.back()["type"], frame.substr(7, data - 7));
    at = end + 2;
  }
  return frames;
}

inline const std::map<std::string, Events> kAnswers = {
    {"nothing", {ended(FinishReason::kStop)}},
    {"tokens without text", {text(""), thought(""), text(""), ended(FinishReason::kStop)}},
    {"text", {text("Hel"), text("lo \"you\"\n"), ended(FinishReason::kStop, "END")}},
    {"a text that is cut", {text("Hel"), ended(FinishReason::kLength)}},
    {"thought and text",
     {thought("I w"), thought(""), thought("onder"), text("It is"), ended(FinishReason::kStop)}},
    {"thought and calls",
     {thought("Both."), call(0, "id0", "weather"), arguments(0, "{\"city\": \"Par"),
      arguments(0, "is\"}"), call_end(0), call(1, "id1", "time"), arguments(1, "{}"), call_end(1),
      ended(FinishReason::kToolCalls)}},
    {"text, a call, and text again",
     {text("Well."), call(0, "id0", "f"), arguments(0, "{\"a\":[1,{\"b\":null}]}"), call_end(0),
      text("And"), text(" so"), thought("hm"), ended(FinishReason::kStop)}},
    {"a call that is cut",
     {text("Well."), call(0, "id0", "f"), arguments(0, "{\"a\": \"x"),
      ended(FinishReason::kLength)}},
    {"a call that is cut after a whole one",
     {call(0, "id0", "f"), arguments(0, "{\"a\":1}"), call_end(0), call(1, "id1", "g"),
      ended(FinishReason::kLength)}},
    {"a call that goes on as text",
     {call(0, "id0", "f"), arguments(0, "{\"a\":"), text("no"), ended(FinishReason::kStop)}},
};

}  // namespace skein::api::testing
