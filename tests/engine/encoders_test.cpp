// Encoders: what transformers says of the same numbers, and the same bytes in whatever company.
#include <cmath>
#include <fstream>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "engine/answer.h"
#include "engine/cosine.h"
#include "engine/manager/load_served_model.h"
#include "engine/tiny_encoder.h"

namespace skein {
namespace {

using ::testing::HasSubstr;
using Json = nlohmann::json;

Json recorded_encoders() {
  std::ifstream file(SKEIN_SOURCE_DIR "/tests/engine/encoders.json");
  return Json::parse(file);
}

class ServedEncoder {
 public:
  explicit ServedEncoder(const std::string& path, ServingOptions options = {})
      : manager_({.memory_bytes = uint64_t{4} << 30}, make_model_loader(options, pool_, clock_),
                 clock_) {
    EXPECT_TRUE(manager_.add({.id = "m", .path = path}).ok());
    auto lease = manager_.acquire("m");
    EXPECT_TRUE(lease.ok()) << lease.message();
    if (lease.ok()) lease_ = std::move(*lease);
  }
  ServedModel* operator->() { return lease_.operator->(); }
  const Tokenizer& tokenizer() { return lease_->model().tokenizer()->tokenizer; }

  RequestHandle submit(const std::vector<TokenId>& ids, uint32_t second_from = 0) {
    GenerationRequest wanted;
    wanted.prompt = ids;
    wanted.second_from = second_from;
    wanted.pooling = pooling_of(lease_->model().vectors());
    return lease_->submit(std::move(wanted), {}).value();
  }
  std::vector<float> vector_of(const std::vector<TokenId>& ids, uint32_t second_from = 0) {
    RequestHandle handle = submit(ids, second_from);
    const Answer answer = read(handle);
    EXPECT_EQ(answer.end.reason, FinishReason::kStop) << answer.end.status.message();
    EXPECT_EQ(answer.end.cached_tokens, 0U);
    return answer.end.hidden;
  }

 private:
  SystemClock clock_;
  ComputePool pool_{2};
  SchedulerManager manager_;
  ModelLease lease_;
};

ServingOptions in_f32() {
  ServingOptions options;
  options.model.precision = Precision::kF32;
  return options;
}

TEST(EncodersTest, VectorsAreThoseOfTransformers) {
  const testing::TestFolder folder;
  for (const auto& [mode, key] : {std::pair{"cls_token", "cls"}, {"mean_tokens", "mean"}}) {
    ServedEncoder exact(testing::write_tiny_encoder(folder, mode, mode), in_f32());
    ServedEncoder usual(folder / mode);
    for (const Json& c : recorded_encoders()["texts"]) {
      const auto ids =
          exact.tokenizer().encode(c["text"].get<std::string>(), {.add_special = true});
      ASSERT_EQ(*ids, c["ids"].get<std::vector<TokenId>>()) << c["text"];
      const auto want = c[key].get<std::vector<double>>();
      EXPECT_GE(testing::cosine(exact.vector_of(*ids), want), 0.9999999)
          << mode << " " << c["text"];
      EXPECT_GE(testing::cosine(usual.vector_of(*ids), want), 0.999) << mode << " " << c["text"];
    }
  }
}

TEST(EncodersTest, ScoresAreThoseOfTransformers) {
  const testing::TestFolder folder;
  ServedEncoder exact(testing::write_tiny_encoder(folder, "rank", "", true), in_f32());
  const RankHead* head = exact->model().rank_head();
  ASSERT_NE(head, nullptr) << exact->model().vectors().status.message();
  EXPECT_EQ(exact->model().vectors().from, "config.json");
  for (const Json& c : recorded_encoders()["pairs"]) {
    const auto pair = exact.tokenizer().encode_pair(c["query"].get<std::string>(),
                                                    c["document"].get<std::string>());
    ASSERT_TRUE(pair.ok()) << pair.message();
    ASSERT_EQ(pair->ids, c["ids"].get<std::vector<TokenId>>());
    ASSERT_EQ(pair->second_from, c["second_from"].get<uint32_t>());
    const double score = head->score(exact.vector_of(pair->ids, pair->second_from));
    EXPECT_NEAR(score, c["score"].get<double>(), 1e-5) << c["query"];
    // Which text a token is of counts.
    EXPECT_GT(std::abs(head->score(exact.vector_of(pair->ids)) - c["score"].get<double>()), 1e-3);
  }
}

TEST(EncodersTest, AGgufFileIsTheSameModel) {
  const testing::TestFolder folder;
  ServedEncoder rank(testing::write_tiny_encoder(folder, "rank", "", true), in_f32());
  const std::string rank_file = testing::write_tiny_encoder_gguf(folder, 4, true);
  ServedEncoder same(rank_file, in_f32());
  ASSERT_NE(same->model().rank_head(), nullptr) << same->model().vectors().status.message();
  const auto pair = same.tokenizer().encode_pair("The cats", "sat, on");
  EXPECT_EQ(pair->ids, rank.tokenizer().encode_pair("The cats", "sat, on")->ids);
  const std::vector<float> hidden = same.vector_of(pair->ids, pair->second_from);
  EXPECT_EQ(hidden, rank.vector_of(pair->ids, pair->second_from));
  EXPECT_EQ(same->model().rank_head()->score(hidden), rank->model().rank_head()->score(hidden));
  for (const auto& [type, mode] : {std::pair{1U, "mean_tokens"}, {2U, "cls_token"}}) {
    ServedEncoder gguf(testing::write_tiny_encoder_gguf(folder, type), in_f32());
    ServedEncoder files(testing::write_tiny_encoder(folder, mode, mode), in_f32());
    EXPECT_EQ(gguf.vector_of(pair->ids), files.vector_of(pair->ids));
  }
}

std::vector<std::vector<TokenId>> texts_of_every_length() {
  std::vector<std::vector<TokenId>> texts;
  for (uint32_t n = 1; n <= testing::kEncoderContext; n += n < 8 ? 1 : 11) {
    std::vector<TokenId>& text = texts.emplace_back();
    for (uint32_t i = 0; i < n; ++i) text.push_back(static_cast<TokenId>((i * 31 + n) % 70));
  }
  return texts;
}

TEST(EncodersTest, AreTheSameBytesInWhateverCompany) {
  const testing::TestFolder folder;
  const auto texts = texts_of_every_length();
  ServingOptions one_at_a_time;
  one_at_a_time.enable_batching = false;
  ServingOptions small_steps;  // as small as they can be: one of the longest texts
  small_steps.engine.scheduler.step_tokens = 1;
  small_steps.engine.scheduler.max_batch = 3;
  for (const std::string mode : {"cls_token", "mean_tokens"}) {
    const std::string path = testing::write_tiny_encoder(folder, mode, mode);
    std::vector<std::vector<float>> expected;
    {
      ServedEncoder direct(path, one_at_a_time);
      for (const auto& text : texts) expected.push_back(direct.vector_of(text));
    }
    for (const ServingOptions& options : {ServingOptions{}, small_steps}) {
      ServedEncoder served(path, options);
      for (size_t i = 0; i < texts.size(); ++i) EXPECT_EQ(served.vector_of(texts[i]), expected[i]);
      std::vector<RequestHandle> handles;
      for (const auto& text : texts) handles.push_back(served.submit(text));
      for (size_t i = 0; i < handles.size(); ++i) {
        EXPECT_EQ(read(handles[i]).end.hidden, expected[i]) << mode << " " << i;
      }
      const EngineSnapshot snapshot = served->snapshot();
      EXPECT_EQ(snapshot.scheduler.preemptions, 0U);
      EXPECT_EQ(snapshot.scheduler.cached_blocks, 0U);
      EXPECT_EQ(snapshot.scheduler.held_blocks, 0U);
      // Every text was one segment, and none was computed in part.
      uint64_t tokens = 0;
      for (const auto& text : texts) tokens += 2 * text.size();
      EXPECT_EQ(snapshot.scheduler.computed_tokens, tokens);
    }
  }
}

TEST(EncodersTest, ALongerTextAndTokensAreRefused) {
  const testing::TestFolder folder;
  ServedEncoder served(testing::write_tiny_encoder(folder, "m", "mean_tokens"));
  EXPECT_EQ(served->max_request_tokens(), testing::kEncoderContext);
  GenerationRequest wanted;
  wanted.prompt.assign(testing::kEncoderContext + 1, 5);
  wanted.pooling = Pooling::kMean;
  auto refused = served->submit(wanted, {});
  EXPECT_EQ(refused.status().code(), Code::kOutOfRange);
  EXPECT_THAT(refused.message(), HasSubstr("97"));
  EXPECT_THAT(refused.message(), HasSubstr("96"));
  wanted.prompt.resize(3);
  wanted.pooling = Pooling::kNone;
  refused = served->submit(wanted, {});
  EXPECT_EQ(refused.status().code(), Code::kUnimplemented);
  EXPECT_THAT(refused.message(), HasSubstr("encoder"));
  ServingOptions one_at_a_time;
  one_at_a_time.enable_batching = false;
  ServedEncoder direct(folder / "m", one_at_a_time);
  auto handle = direct->submit(wanted, {});
  ASSERT_FALSE(handle.ok());
  EXPECT_EQ(handle.status().code(), Code::kUnimplemented);
}

// What the files say, or the option where they say nothing.
TEST(EncodersTest, PoolingIsThatOfTheFiles) {
  const testing::TestFolder folder;
  const auto facts = [&](const std::string& path, std::optional<VectorKind> otherwise = {}) {
    const auto source = open_model(path);
    EXPECT_TRUE(source.ok()) << source.message();
    return read_vectors(*source, otherwise);
  };
  const std::string plain = testing::write_tiny_encoder(folder, "plain", "");
  EXPECT_FALSE(facts(plain).kind.has_value());
  EXPECT_TRUE(facts(plain).of_encoder);
  EXPECT_EQ(facts(plain, VectorKind::kMean).kind, VectorKind::kMean);
  EXPECT_EQ(facts(plain, VectorKind::kFirst).kind, VectorKind::kFirst);
  EXPECT_THAT(facts(plain, VectorKind::kLast).status.message(), HasSubstr("'last'"));
  EXPECT_EQ(facts(testing::write_tiny_encoder(folder, "c", "cls_token")).kind, VectorKind::kFirst);
  EXPECT_THAT(facts(testing::write_tiny_encoder(folder, "l", "lasttoken")).status.message(),
              HasSubstr("'lasttoken'; 'cls_token' or 'mean_tokens' alone is known"));
  EXPECT_EQ(facts(testing::write_tiny_encoder_gguf(folder, 2)).kind, VectorKind::kFirst);
  EXPECT_EQ(facts(testing::write_tiny_encoder_gguf(folder, 1)).kind, VectorKind::kMean);
  EXPECT_FALSE(facts(testing::write_tiny_encoder_gguf(folder, 3)).status.ok());
}

TEST(EncodersTest, AHeadOfSeveralLabelsDoesNotRank) {
  const testing::TestFolder folder;
  testing::write_tiny_encoder(folder, "labels", "", true);
  auto tensors = testing::encoder_tensors("bert.", false);
  tensors.push_back(testing::f32("classifier.weight", {3, 64}, testing::numbers(1, 192)));
  tensors.push_back(testing::f32("classifier.bias", {3}, testing::numbers(2, 3)));
  folder.write("labels/model.safetensors", testing::safetensors_of(tensors));
  ServedEncoder served(folder / "labels");
  EXPECT_FALSE(served->model().vectors().kind.has_value());
  EXPECT_THAT(served->model().vectors().status.message(), HasSubstr("[3, 64], it must be [1, 64]"));
}

TEST(EncodersTest, AModelThatKnowsOneTextDoesNotRank) {
  const testing::TestFolder folder;
  testing::write_tiny_encoder(folder, "one", "", true);
  Json config = testing::encoder_config(true);
  config["type_vocab_size"] = 1;
  folder.write("one/config.json", config.dump());
  auto tensors = testing::encoder_tensors("bert.", true);
  for (testing::TensorData& tensor : tensors) {
    if (tensor.shape[0] != 2) continue;
    tensor.shape[0] = 1;
    tensor.bytes.resize(tensor.bytes.size() / 2);
  }
  folder.write("one/model.safetensors", testing::safetensors_of(tensors));
  ServedEncoder served(folder / "one");
  EXPECT_EQ(served->model().vectors().status.message(),
            "the model knows one text, ranking needs two");
}

TEST(EncodersTest, FilesThatAreNotBertsAreRefused) {
  const testing::TestFolder folder;
  const auto message = [&](const Json& change) {
    Json config = testing::encoder_config(false);
    config.update(change);
    folder.write("m/config.json", config.dump());
    return check_model(folder / "m", 0).message();
  };
  testing::write_tiny_encoder(folder, "m", "");
  EXPECT_EQ(message(Json::object()), "");
  EXPECT_THAT(message({{"position_embedding_type", "relative_key"}}), HasSubstr("'relative_key'"));
  EXPECT_THAT(message({{"hidden_act", "relu"}}), HasSubstr("'relu'"));
  EXPECT_THAT(message({{"is_decoder", true}}), HasSubstr("is_decoder"));
  EXPECT_THAT(message({{"max_position_embeddings", 97}}), HasSubstr("[96, 64]"));
  EXPECT_THAT(message({{"type_vocab_size", 0}}), HasSubstr("token types is 0"));
}

}  // namespace
}  // namespace skein
