// Thoughts, texts and calls as the items of OpenAI's Responses. Joined, a stream is the plain
// answer.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <set>

#include "server/scripted_answers.h"

namespace skein::api {
namespace {

using namespace testing;  // NOLINT: what is scripted
using ::testing::HasSubstr;
using ::testing::Not;

// What a client of Responses makes of a stream: the items by their deltas, and the last response.
struct JoinedResponse {
  Json items = Json::array();
  Json last;

  explicit JoinedResponse(const std::string& stream) {
    std::vector<std::string> deltas;
    std::set<std::string> ids;
    uint64_t sequence = 0;
    for (const Json& frame : frames_of(stream)) {
      EXPECT_EQ(frame["sequence_number"], sequence++);
      const auto type = frame["type"].get<std::string>();
      if (frame.contains("response")) last = frame["response"];
      if (frame.contains("output_index")) {
        const size_t index = frame["output_index"].get<size_t>();
        if (type == "response.output_item.added") {
          EXPECT_EQ(index, deltas.size());
          EXPECT_EQ(frame["item"]["status"], "in_progress");
          EXPECT_TRUE(ids.insert(frame["item"]["id"].get<std::string>()).second);
          deltas.emplace_back();
          continue;
        }
        EXPECT_EQ(index + 1, deltas.size()) << "one item after the other";
      }
      if (frame.contains("item_id")) {
        EXPECT_TRUE(ids.contains(frame["item_id"].get<std::string>()));
      }
      if (type.ends_with(".delta")) deltas.back() += frame["delta"].get<std::string>();
      for (const char* name : {"text", "arguments", "input"}) {
        if (type.ends_with(".done") && frame.contains(name)) {
          EXPECT_EQ(frame[name], deltas.back());
        }
      }
      if (type == "response.output_item.done") {
        items.push_back(frame["item"]);
        EXPECT_EQ(text_of(frame["item"]), deltas.back());
      }
    }
  }
  static std::string text_of(const Json& item) {
    for (const char* name : {"arguments", "input"}) {
      if (item.contains(name)) return item[name].get<std::string>();
    }
    return item["content"][0]["text"].get<std::string>();
  }
};

TEST(ResponseItems, JoinedAreThePlainAnswer) {
  for (const auto& [name, events] : kAnswers) {
    SCOPED_TRACE(name);
    const JoinedResponse stream(written(AnswerKind::kResponse, true, events));
    const std::string whole = written(AnswerKind::kResponse, false, events);
    EXPECT_EQ(stream.last.dump(), whole) << "the last event has the plain answer";
    EXPECT_EQ(stream.items, stream.last["output"]);
    for (const Json& item : stream.items) EXPECT_NE(item["status"], "in_progress");
  }
}

const std::string kResponseTail =
    R"("temperature":0.7,"top_p":0.95,"usage":{"input_tokens":10,"input_tokens_details":{"cached_tokens":8,"cache_write_tokens":0},)"
    R"("output_tokens":4,"output_tokens_details":{"reasoning_tokens":3},"total_tokens":14}})";

TEST(ResponseItems, Whole) {
  AnswerOptions wanted;
  wanted.echo = std::make_shared<const std::string>(R"("tools":[])");
  EXPECT_EQ(
      written(AnswerKind::kResponse, false, kAnswers.at("thought and text"), wanted),
      R"({"id":"resp_f00d","object":"response","created_at":17,"status":"completed","background":false,"error":null,)"
      R"("incomplete_details":null,"tools":[],"store":false,"model":"org/model","output":[)"
      R"({"id":"rs_f00d0","type":"reasoning","status":"completed","summary":[],"content":[{"type":"reasoning_text",)"
      R"("text":"I wonder"}],"encrypted_content":null},)"
      R"({"id":"msg_f00d1","type":"message","status":"completed","role":"assistant","content":[{"type":"output_text",)"
      R"("annotations":[],"logprobs":[],"text":"It is"}]}],)" +
          kResponseTail);
  const Json cut =
      Json::parse(written(AnswerKind::kResponse, false, kAnswers.at("a call that is cut")));
  EXPECT_EQ(cut["status"], "incomplete");
  EXPECT_EQ(cut["incomplete_details"]["reason"], "max_output_tokens");
  EXPECT_EQ(cut["output"][0]["status"], "completed");
  EXPECT_EQ(cut["output"][1].dump(),
            R"({"id":"fc_f00d1","type":"function_call","status":"incomplete","call_id":"id0",)"
            R"("name":"f","arguments":"{\"a\": \"x"})");
}

// What is kept is the answer as it is sent, and that says what became of it.
TEST(ResponseItems, WhatIsKeptIsWhatIsSent) {
  AnswerOptions wanted;
  wanted.kept = std::make_shared<const KeptTurn>(KeptTurn{"[]", ""});
  for (const auto& [name, events] : kAnswers) {
    for (const bool stream : {false, true}) {
      SCOPED_TRACE(name);
      const Figures figures{{10, 4, 8, 3}, {}};
      Told told(AnswerKind::kResponse, stream, wanted);
      told.tell({events.begin(), events.end() - 1});
      told.writer->finish(told.out, 0, std::get<AnswerEnd>(events.back()), figures);
      const KeptAnswer kept = told.writer->kept(figures);
      told.writer->set_kept(true);
      told.writer->end(told.out, figures);
      const std::string whole = kept.head + kept.output + kept.tail;
      EXPECT_EQ(stream ? JoinedResponse(told.out).last.dump() : told.out, whole);
      EXPECT_EQ(Json::parse(kept.output), Json::parse(whole)["output"]);
      EXPECT_EQ(Json::parse(whole)["store"], true);
    }
  }
  Told refused(AnswerKind::kResponse, true, wanted);
  refused.tell({text("Hel")});
  const std::string begun = refused.out;
  refused.writer->finish(refused.out, 0, std::get<AnswerEnd>(ended(FinishReason::kStop)), {});
  refused.writer->set_kept(false);
  refused.writer->end(refused.out, {});
  EXPECT_EQ(frames_of(begun)[0]["response"]["store"], true);
  EXPECT_EQ(JoinedResponse(refused.out).last["store"], false);
  Told failed(AnswerKind::kResponse, true, wanted);
  EXPECT_EQ(frames_of(failed.writer->failure(internal_failure())).back()["response"]["store"],
            false);
  EXPECT_GE(failed.writer->held_bytes(), 2 * wanted.kept->input.size());
}

TEST(ResponseItems, AStreamedText) {
  const std::vector<Json> frames =
      frames_of(written(AnswerKind::kResponse, true, kAnswers.at("text")));
  std::vector<std::string> types;
  types.reserve(frames.size());
  for (const Json& frame : frames) types.push_back(frame["type"].get<std::string>());
  EXPECT_EQ(types,
            (std::vector<std::string>{"response.created", "response.in_progress",
                                      "response.output_item.added", "response.content_part.added",
                                      "response.output_text.delta", "response.output_text.delta",
                                      "response.output_text.done", "response.content_part.done",
                                      "response.output_item.done", "response.completed"}));
  EXPECT_EQ(frames[0]["response"]["status"], "in_progress");
  EXPECT_TRUE(frames[0]["response"]["usage"].is_null());
  EXPECT_EQ(frames[0]["response"]["output"], Json::array());
  EXPECT_EQ(
      frames[4].dump(),
      R"({"type":"response.output_text.delta","sequence_number":4,"item_id":"msg_f00d0","output_index":0,)"
      R"("content_index":0,"delta":"Hel","logprobs":[]})");
}

TEST(ResponseItems, StreamedCalls) {
  const std::vector<Json> frames = frames_of(written(
      AnswerKind::kResponse, true,
      {call(0, "call_1", "f"), arguments(0, "{}"), call_end(0), call(1, "call_2", "patch", true),
       arguments(1, "*** Begin\n"), call_end(1), ended(FinishReason::kToolCalls)}));
  ASSERT_EQ(frames.size(), 11U);
  EXPECT_EQ(frames[2]["item"].dump(),
            R"({"id":"fc_f00d0","type":"function_call","status":"in_progress","call_id":"call_1",)"
            R"("name":"f","arguments":""})");
  EXPECT_EQ(
      frames[4].dump(),
      R"({"type":"response.function_call_arguments.done","sequence_number":4,"item_id":"fc_f00d0",)"
      R"("output_index":0,"arguments":"{}","name":"f"})");
  EXPECT_EQ(
      frames[7].dump(),
      R"({"type":"response.custom_tool_call_input.delta","sequence_number":7,"item_id":"ctc_f00d1",)"
      R"("output_index":1,"delta":"*** Begin\n"})");
  EXPECT_EQ(frames[8]["input"], "*** Begin\n");
  EXPECT_EQ(
      frames[9]["item"].dump(),
      R"({"id":"ctc_f00d1","type":"custom_tool_call","status":"completed","call_id":"call_2",)"
      R"("name":"patch","input":"*** Begin\n"})");
}

TEST(ResponseItems, ACallThatIsCutIsNotDone) {
  const std::string stream =
      written(AnswerKind::kResponse, true, kAnswers.at("a call that is cut"));
  EXPECT_THAT(stream, Not(HasSubstr("function_call_arguments.done")));
  EXPECT_THAT(stream, HasSubstr("event: response.incomplete\n"));
  EXPECT_THAT(stream, Not(HasSubstr("response.completed")));
}

// A token's logprobs come with the text that it is part of; those that show nothing at the end of a
// message belong to it, and without any message to nobody.
TEST(ResponseItems, LogprobsWaitForTheirText) {
  AnswerOptions wanted;
  wanted.sampling.logprobs = true;
  const std::vector<TokenLogprob> of_a = {{'a', -1}}, of_b = {{'b', -2}}, of_c = {{'c', -3}};
  const std::vector<TokenId> one = {'x'};
  const Events events = {AnswerContent{"", one, of_a}, AnswerContent{"ab", one, of_b},
                         AnswerContent{"", one, of_c}, ended(FinishReason::kStop)};
  const JoinedResponse stream(written(AnswerKind::kResponse, true, events, wanted));
  const Json& logprobs = stream.items[0]["content"][0]["logprobs"];
  ASSERT_EQ(logprobs.size(), 3U);
  EXPECT_EQ(logprobs[0].dump(), R"({"token":"a","logprob":-1,"bytes":[97],"top_logprobs":[]})");
  EXPECT_EQ(logprobs[2]["token"], "c");
  EXPECT_EQ(stream.last.dump(), written(AnswerKind::kResponse, false, events, wanted));
  const JoinedResponse silent(written(AnswerKind::kResponse, true, {events[0], events[3]}, wanted));
  EXPECT_EQ(silent.items.size(), 0U);
}

TEST(ResponseItems, ThoughtsAreSealedForThoseWhoSendThemBack) {
  AnswerOptions wanted;
  wanted.seal_reasoning = true;
  const Events& events = kAnswers.at("thought and text");
  const JoinedResponse stream(written(AnswerKind::kResponse, true, events, wanted));
  EXPECT_EQ(stream.items[0]["encrypted_content"], "skein:I wonder");
  EXPECT_EQ(stream.last.dump(), written(AnswerKind::kResponse, false, events, wanted));
}

TEST(ResponseItems, AFailureIsTheLastEvent) {
  Told told(AnswerKind::kResponse, true);
  told.tell({text("Hel")});
  const JoinedResponse failed(told.out + told.writer->failure(deadline_exceeded()));
  EXPECT_EQ(failed.last["status"], "failed");
  EXPECT_EQ(failed.last["error"].dump(),
            R"({"code":"deadline_exceeded","message":"The request's deadline has passed."})");
  EXPECT_EQ(failed.last["usage"]["output_tokens"], 4);
  const std::string at_once =
      Told(AnswerKind::kResponse, true).writer->failure({.status = 500, .message = "m"});
  EXPECT_EQ(frames_of(at_once).front()["type"], "response.created");
  EXPECT_EQ(frames_of(at_once).back()["response"]["error"]["code"], "server_error");
  const std::string unknown = AnswerKind::kResponse.error_frame(queue_full(1));
  EXPECT_EQ(frames_of(unknown)[0]["type"], "error");
  EXPECT_EQ(frames_of(unknown)[0]["code"], "queue_full");
  EXPECT_EQ(frames_of(unknown)[0]["error"]["code"], "queue_full");
  EXPECT_EQ(Told(AnswerKind::kMessage, true).writer->failure({}), "")
      << "it has a frame of its own";
}

TEST(ResponseItems, WhatIsKeptIsCounted) {
  AnswerOptions wanted;
  wanted.echo = std::make_shared<const std::string>(1000, ' ');
  for (const bool stream : {false, true}) {
    Told told(AnswerKind::kResponse, stream, wanted);
    EXPECT_EQ(told.writer->held_bytes(), 1000U);
    const std::string long_text(500, 'x');
    told.tell({text(long_text), call(0, "i", "f"), arguments(0, long_text)});
    EXPECT_GE(told.writer->held_bytes(), 3000U);
  }
  Told message(AnswerKind::kMessage, false);
  message.tell({thought("12345"), call(0, "i", "f"), arguments(0, "12345")});
  EXPECT_GE(message.writer->held_bytes(), 20U);
}

}  // namespace
}  // namespace skein::api
