#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "server/answer/answer_world.h"
#include "server/answer/delivery.h"

namespace skein::testing {
namespace {

using ::testing::HasSubstr;
using enum http::WriteResult;

// A writer whose frames are the text itself.
class PlainWriter final : public api::AnswerWriter {
 public:
  explicit PlainWriter(bool stream) : stream_(stream) {}
  void progress(std::string& out, uint64_t, uint64_t) override { out += "%"; }
  void write(std::string& out, uint32_t, const AnswerContent& content,
             const api::Figures&) override {
    (stream_ ? out : whole_) += content.text;
  }
  void write(std::string& out, uint32_t, const AnswerReasoning& thought,
             const api::Figures&) override {
    (stream_ ? out : whole_) += thought.text;
  }
  void write(std::string& out, uint32_t, const AnswerCallBegin& call,
             const api::Figures&) override {
    (stream_ ? out : whole_) += call.name;
  }
  void write(std::string& out, uint32_t, const AnswerArguments& arguments,
             const api::Figures&) override {
    (stream_ ? out : whole_) += arguments.text;
  }
  void write(std::string&, uint32_t, const AnswerCallEnd&, const api::Figures&) override {}
  void finish(std::string& out, uint32_t, const AnswerEnd&, const api::Figures&) override {
    if (stream_) out += ";";
  }
  void end(std::string& out, const api::Figures&) override { out += whole_ + "."; }
  std::string failure(const api::Error& error) override {
    return kept_bytes > 0 ? "failed: " + error.code : std::string();
  }
  uint64_t held_bytes() const override { return whole_.size() + kept_bytes; }

  uint64_t kept_bytes = 0;  // by a stream that tells everything once more at its end

 private:
  const bool stream_;
  std::string whole_;
};

struct Output {
  Output(bool stream, uint64_t limit_bytes,
         std::deque<std::optional<http::WriteResult>> results = {})
      : budget(limit_bytes) {
    auto sink = std::make_unique<FakeSink>(told);
    sink->results = std::move(results);
    output = std::make_unique<AnswerOutput>(std::move(sink), api::AnswerKind::kChat, stream, budget,
                                            "key");
    output->open(
        std::chrono::seconds(15), [] {}, [this] { ++ready; });
    output->set_writer(std::make_unique<PlainWriter>(stream));
  }
  void content(std::string_view text) { output->write(0, AnswerContent{text, {}, {}}, {}); }

  std::shared_ptr<Told> told = std::make_shared<Told>();
  ByteBudget budget;
  int ready = 0;
  std::unique_ptr<AnswerOutput> output;
};

TEST(AnswerOutput, FramesLeaveWhenTheyAreFlushed) {
  Output o(true, 1000);
  EXPECT_TRUE(o.told->started);
  o.output->progress(1, 2);
  o.content("ab");
  EXPECT_TRUE(o.output->flush_many()) << "too few to flush";
  EXPECT_EQ(o.told->frames, "");
  EXPECT_TRUE(o.output->flush());
  EXPECT_EQ(o.told->frames, "%ab");
  o.content(std::string(64 << 10, 'x'));
  EXPECT_TRUE(o.output->flush_many());
  EXPECT_EQ(o.told->frames.size(), 3U + (64 << 10));
  o.output->finish(0, {}, {});
  o.output->end({});
  o.output->end({});
  EXPECT_TRUE(o.output->flush());
  o.output->complete("id");
  EXPECT_TRUE(o.told->finished);
  EXPECT_TRUE(o.told->frames.ends_with("x;.")) << "one end";
}

TEST(AnswerOutput, WhatIsNotTakenIsHeldOnTheAccount) {
  Output o(true, 1000, {kFull, kFull, kTaken});
  o.content("abc");
  EXPECT_FALSE(o.output->flush());
  EXPECT_TRUE(o.output->is_stalled());
  EXPECT_EQ(o.ready, 1);
  EXPECT_EQ(o.budget.used_bytes(), 3U);
  o.content("de");
  EXPECT_FALSE(o.output->flush());
  EXPECT_EQ(o.budget.used_bytes(), 5U);
  EXPECT_TRUE(o.output->flush());
  EXPECT_FALSE(o.output->is_stalled());
  EXPECT_EQ(o.told->frames, "abcde");
  EXPECT_EQ(o.budget.used_bytes(), 0U);
}

TEST(AnswerOutput, AReaderThatIsTooFarBehindIsOutOfMemory) {
  Output o(true, 1000, {kFull, kFull});
  o.content(std::string(400, 'x'));
  EXPECT_FALSE(o.output->flush());
  EXPECT_TRUE(o.output->has_memory());
  o.content(std::string(200, 'x'));
  EXPECT_FALSE(o.output->flush());
  EXPECT_FALSE(o.output->has_memory());
  EXPECT_EQ(o.output->memory_error().code, "answer_too_large");
  o.output->release();
  EXPECT_EQ(o.budget.used_bytes(), 0U);
}

TEST(AnswerOutput, WhatTheWriterOfAStreamKeepsIsOnTheAccount) {
  Output o(true, 1000, {kTaken, kFull});
  auto keeping = std::make_unique<PlainWriter>(true);
  PlainWriter& writer = *keeping;
  o.output->set_writer(std::move(keeping));
  writer.kept_bytes = 100;
  o.content("abc");
  EXPECT_EQ(o.budget.used_bytes(), 100U);
  EXPECT_TRUE(o.output->flush());
  EXPECT_EQ(o.budget.used_bytes(), 100U) << "what has left is not all that is held";
  o.content("de");
  EXPECT_FALSE(o.output->flush());
  EXPECT_EQ(o.budget.used_bytes(), 102U);
  writer.kept_bytes = 600;
  o.content("f");
  EXPECT_FALSE(o.output->has_memory());
  o.output->fail("id", o.output->memory_error());
  EXPECT_TRUE(o.told->frames.ends_with("failed: overloaded")) << "the writer's own words";
  o.output->release();
  EXPECT_EQ(o.budget.used_bytes(), 0U);
}

TEST(AnswerOutput, WhoIsGoneTakesNothingAndHoldsNothing) {
  Output o(true, 1000, {kFull, kGone});
  o.content("abc");
  EXPECT_FALSE(o.output->flush());
  EXPECT_TRUE(o.output->flush());
  EXPECT_EQ(o.told->frames, "");
  EXPECT_EQ(o.budget.used_bytes(), 0U);
}

TEST(AnswerOutput, AWholeAnswerIsBoundedWhileItGrows) {
  Output o(false, 1000);
  EXPECT_FALSE(o.told->started);
  o.content("abc");
  EXPECT_EQ(o.budget.used_bytes(), 3U);
  EXPECT_TRUE(o.output->flush());
  o.output->end({});
  o.output->complete("id");
  EXPECT_EQ(o.told->body, "abc.");
  EXPECT_EQ(o.budget.used_bytes(), 0U) << "whoever has the body accounts for it";
  Output large(false, 1000);
  large.content(std::string(100, 'x'));
  large.content(std::string(500, 'x'));
  EXPECT_FALSE(large.output->has_memory());
  EXPECT_FALSE(large.output->flush_many());
  EXPECT_EQ(large.output->memory_error().code, "overloaded") << "others hold the memory";
}

TEST(AnswerOutput, AnErrorIsAFrameWhereFramesHaveLeft) {
  Output early(true, 1000), late(true, 1000);
  EXPECT_FALSE(early.output->fail("id", api::overloaded(1)));
  EXPECT_EQ(early.told->error->code, "overloaded");
  late.content("ab");
  EXPECT_TRUE(late.output->flush());
  late.content("never seen");
  EXPECT_TRUE(late.output->fail("id", api::overloaded(1)));
  EXPECT_THAT(late.told->frames, HasSubstr("abdata: {\"error\":"));
  Output abandoned(true, 1000);
  abandoned.output->abandon();
  EXPECT_TRUE(abandoned.told->let_go);
}

}  // namespace
}  // namespace skein::testing
