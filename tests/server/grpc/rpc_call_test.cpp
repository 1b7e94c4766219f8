// A call between gRPC and its answer, and the pieces that it is sent.
#include "server/grpc/rpc_call.h"

#include <gtest/gtest.h>

#include "engine/models.h"
#include "engine/tiny_model.h"
#include "server/grpc/piece_writer.h"
#include "server/grpc/vllm.pb.h"

namespace skein::rpc {
namespace {

using ::vllm::FinishInfo;
using ::vllm::GenerateResponse;

// gRPC, which says that something was written when the test does.
struct FakeWire final : Wire {
  void write(const grpc::ByteBuffer& message) override {
    grpc::Slice slice;
    ASSERT_TRUE(message.DumpToSingleSlice(&slice).ok());
    written.emplace_back(reinterpret_cast<const char*>(slice.begin()), slice.size());
    ASSERT_EQ(status, nullptr);
  }
  void finish(const grpc::Status& how, std::string_view whole_) override {
    ASSERT_EQ(status, nullptr) << "twice";
    status = std::make_unique<grpc::Status>(how);
    whole = whole_;
  }
  std::vector<std::string> written;
  std::unique_ptr<grpc::Status> status;
  std::string whole;
};

std::string piece(std::string_view text) {
  std::string out;
  append_piece(out, text);
  return out;
}

TEST(RpcCall, WritesOneByOneAndThenEnds) {
  FakeWire wire;
  RpcCall call(nullptr);
  EXPECT_EQ(call.write(piece("a") + piece("b")), http::WriteResult::kTaken);
  call.end(grpc::Status::OK, piece("c"));
  call.end({grpc::StatusCode::INTERNAL, "too late"});
  EXPECT_EQ(call.write(piece("d")), http::WriteResult::kGone);
  call.attach(&wire);
  EXPECT_EQ(wire.written, (std::vector<std::string>{"a"}));
  call.on_written(true);
  call.on_written(true);
  EXPECT_EQ(wire.status, nullptr);
  call.on_written(true);
  EXPECT_EQ(wire.written, (std::vector<std::string>{"a", "b", "c"}));
  ASSERT_NE(wire.status, nullptr);
  EXPECT_TRUE(wire.status->ok());
  call.on_cancelled();  // gRPC may still say so
}

TEST(RpcCall, WhoDoesNotReadIsWaitedFor) {
  FakeWire wire;
  RpcCall call(nullptr);
  call.attach(&wire);
  int ready = 0;
  call.on_ready([&ready] { ++ready; });
  const std::string many = piece(std::string(RpcCall::kOutboxBytes / 2, 'x'));
  for (int i = 0; i < 3; ++i) EXPECT_EQ(call.write(many), http::WriteResult::kTaken);
  EXPECT_EQ(call.write(many), http::WriteResult::kFull);
  call.on_written(true);
  EXPECT_EQ(ready, 0);
  call.on_written(true);
  EXPECT_EQ(ready, 1);
  EXPECT_EQ(call.write(many), http::WriteResult::kTaken);
}

TEST(RpcCall, WhoHasGoneEndsItAtOnceWhateverTheAnswerDoes) {
  FakeWire wire;
  RpcCall call(nullptr);
  call.attach(&wire);
  bool hung_up = false;
  call.on_hangup([&hung_up] { hung_up = true; });
  call.write(piece("a") + piece("b"));
  call.on_cancelled();
  EXPECT_TRUE(hung_up);
  EXPECT_EQ(wire.status, nullptr) << "a write is under way";
  call.on_written(false);
  ASSERT_NE(wire.status, nullptr);
  EXPECT_EQ(wire.status->error_code(), grpc::StatusCode::CANCELLED);
  EXPECT_EQ(call.write(piece("c")), http::WriteResult::kGone);
  bool told_again = false;
  call.on_hangup([&told_again] { told_again = true; });
  EXPECT_TRUE(told_again) << "who comes later is told at once";
}

TEST(RpcCall, AnswerThatIsGivenUpEndsItsCall) {
  FakeWire wire;
  const auto call = std::make_shared<RpcCall>(nullptr);
  call->attach(&wire);
  { const RpcSink sink(call); }
  ASSERT_NE(wire.status, nullptr);
  EXPECT_EQ(wire.status->error_code(), grpc::StatusCode::INTERNAL);
}

TEST(RpcCall, ErrorsNameTheirField) {
  const grpc::Status status = status_of(api::not_supported("Media", "media"));
  EXPECT_EQ(status.error_code(), grpc::StatusCode::INVALID_ARGUMENT);
  EXPECT_TRUE(status.error_message().starts_with("media: ")) << status.error_message();
  EXPECT_EQ(status_of(api::draining(1)).error_code(), grpc::StatusCode::UNAVAILABLE);
  EXPECT_EQ(status_of(api::queue_full(1)).error_code(), grpc::StatusCode::RESOURCE_EXHAUSTED);
  EXPECT_EQ(status_of(api::deadline_exceeded()).error_code(), grpc::StatusCode::DEADLINE_EXCEEDED);
  EXPECT_EQ(status_of(api::model_not_found("x")).error_code(), grpc::StatusCode::NOT_FOUND);
  EXPECT_EQ(status_of(api::internal_failure()).error_code(), grpc::StatusCode::INTERNAL);
}

// ---- pieces

const Tokenizer& tokenizer() {  // its first 256 ids are the bytes
  static const testing::TestFolder folder;
  static const LoadedTokenizer loaded = testing::load(testing::write_tiny_model(folder));
  return loaded.tokenizer;
}

class Pieces {
 public:
  explicit Pieces(api::AnswerOptions wanted) : wanted_(std::move(wanted)) {
    const std::vector<TokenId> prompt = {1, 2};
    writer_ = kGenerateAnswer.make_writer({identity_, wanted_, tokenizer(), 1, prompt});
  }
  Pieces& content(std::string_view text, std::string_view tokens) {
    std::vector<TokenId> ids;
    for (const char c : tokens) ids.push_back(static_cast<uint8_t>(c));
    writer_->write(out_, 0, AnswerContent{text, ids, {}}, {});
    return *this;
  }
  Pieces& finish(FinishReason reason, std::string_view stop = {}) {
    AnswerEnd end{{}, stop};
    end.how.reason = reason;
    writer_->finish(out_, 0, end, {});
    return *this;
  }
  std::vector<GenerateResponse> taken() {
    std::vector<GenerateResponse> found;
    for (std::string_view rest = out_; !rest.empty();) {
      const std::string_view bytes = take_piece(rest);
      EXPECT_TRUE(
          found.emplace_back().ParseFromArray(bytes.data(), static_cast<int>(bytes.size())));
    }
    out_.clear();
    return found;
  }
  GenerateResponse whole() {
    writer_->end(out_, {});
    GenerateResponse message;
    EXPECT_TRUE(message.ParseFromString(out_));
    return message;
  }
  std::string failure(const api::Error& error) { return writer_->failure(error); }

 private:
  const api::Identity identity_{"id", 1, "m"};
  const api::AnswerOptions wanted_;
  std::unique_ptr<api::AnswerWriter> writer_;
  std::string out_;
};

api::AnswerOptions streamed() {
  api::AnswerOptions wanted;
  wanted.stream = wanted.return_token_ids = wanted.goes_on = true;
  return wanted;
}

TEST(PieceWriter, FirstHasThePromptAndLastTheEnd) {
  Pieces pieces(streamed());
  auto found = pieces.content("a", "a").content("b", "b").finish(FinishReason::kLength).taken();
  ASSERT_EQ(found.size(), 3);
  EXPECT_EQ(found[0].prompt_info().num_prompt_tokens(), 2);
  EXPECT_FALSE(found[1].has_prompt_info());
  EXPECT_EQ(found[1].outputs().text(), "b");
  EXPECT_EQ(found[1].outputs().token_ids(0), 'b');
  const FinishInfo& end = found[2].outputs().finish_info();
  EXPECT_EQ(end.finish_reason(), FinishInfo::LENGTH);
  EXPECT_EQ(end.num_output_tokens(), 2);
}

// Whoever has a token has all of its text, so that another node can go on behind it.
TEST(PieceWriter, TokensWaitForTheirText) {
  Pieces pieces(streamed());
  EXPECT_EQ(pieces.content("a", "a\xc3").taken().size(), 0) << "half a character";
  auto found = pieces.content("\u00e9", "\xa9").taken();
  ASSERT_EQ(found.size(), 1);
  EXPECT_EQ(found[0].outputs().text(), "a\u00e9");
  EXPECT_EQ(found[0].outputs().num_tokens(), 3);
  EXPECT_EQ(pieces.content("b", "b#").taken().size(), 0) << "it may be the start of a stop text";
  found = pieces.content("#c", "c").taken();
  ASSERT_EQ(found.size(), 1);
  EXPECT_EQ(found[0].outputs().text(), "b#c");
  EXPECT_EQ(found[0].outputs().num_tokens(), 3);
}

TEST(PieceWriter, StopTextOnRequest) {
  for (const bool wanted : {false, true}) {
    api::AnswerOptions options = streamed();
    options.pieces.stop_text = wanted;
    Pieces pieces(options);
    auto found = pieces.content("a", "a##").finish(FinishReason::kStop, "##").taken();
    ASSERT_EQ(found.size(), 1);
    EXPECT_EQ(found[0].outputs().text(), wanted ? "a##" : "a");
    EXPECT_EQ(found[0].outputs().finish_info().stop_string(), "##");
    EXPECT_EQ(found[0].outputs().finish_info().num_output_tokens(), 3);
  }
}

TEST(PieceWriter, WholeAndWithoutTextAndCalledOff) {
  api::AnswerOptions options = streamed();
  options.stream = false;
  Pieces whole(options);
  const GenerateResponse all =
      whole.content("a", "a").content("b", "b").finish(FinishReason::kStop).whole();
  EXPECT_EQ(all.outputs().text(), "ab");
  EXPECT_EQ(all.outputs().token_ids_size(), 2);
  EXPECT_EQ(all.outputs().finish_info().finish_reason(), FinishInfo::STOP);
  options = streamed();
  options.pieces.text = false;
  Pieces ids(options);
  auto found = ids.content("a", "a\xc3").taken();
  ASSERT_EQ(found.size(), 1);
  EXPECT_EQ(found[0].outputs().text(), "");
  EXPECT_EQ(found[0].outputs().num_tokens(), 2);
  EXPECT_EQ(ids.failure(api::draining(1)), "") << "a status says it";
  std::string last = ids.failure({.status = 499, .message = ""});
  std::string_view rest = last;
  GenerateResponse end;
  const std::string_view bytes = take_piece(rest);
  ASSERT_TRUE(end.ParseFromArray(bytes.data(), static_cast<int>(bytes.size())));
  EXPECT_EQ(end.outputs().finish_info().finish_reason(), FinishInfo::ABORTED);
  EXPECT_EQ(end.outputs().finish_info().num_output_tokens(), 2);
}

}  // namespace
}  // namespace skein::rpc
