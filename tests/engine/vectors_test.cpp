// Vectors of real models: what transformers says they are, and the same bytes in whatever company.
#include "engine/loading/vectors.h"

#include <cmath>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <functional>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "engine/answer.h"
#include "engine/cosine.h"
#include "engine/manager/load_served_model.h"
#include "engine/tiny_model.h"
#include "format/gguf_writer.h"

namespace skein {
namespace {

using ::testing::HasSubstr;
using Json = nlohmann::json;

// Recorded with Hugging Face transformers (tests/engine/embeddings.json says which).
Json recorded() {
  std::ifstream file(SKEIN_SOURCE_DIR "/tests/engine/embeddings.json");
  return Json::parse(file)["models"];
}

std::string golden(const std::string& family) {
  return SKEIN_SOURCE_DIR "/build/goldens/" + family;
}

// A served model of its own, as a test wants it.
class Served {
 public:
  explicit Served(const std::string& path, ServingOptions options = {})
      : manager_({.memory_bytes = uint64_t{4} << 30}, loader(std::move(options)), clock_) {
    EXPECT_TRUE(manager_.add({.id = "m", .path = path}).ok());
    auto lease = manager_.acquire("m");
    EXPECT_TRUE(lease.ok()) << lease.message();
    if (lease.ok()) lease_ = std::move(*lease);
  }
  ServedModel& operator*() { return *lease_; }
  ServedModel* operator->() { return lease_.operator->(); }

  RequestHandle submit(const std::vector<TokenId>& prompt, Pooling pooling) {
    GenerationRequest wanted;
    wanted.prompt = prompt;
    wanted.pooling = pooling;
    return lease_->submit(std::move(wanted), {}).value();
  }
  std::vector<float> vector_of(const std::vector<TokenId>& prompt, Pooling pooling) {
    RequestHandle handle = submit(prompt, pooling);
    const Answer answer = read(handle);
    EXPECT_EQ(answer.end.reason, FinishReason::kStop) << answer.end.status.message();
    cached_tokens = answer.end.cached_tokens;
    return answer.end.hidden;
  }

  uint32_t cached_tokens = 0;  // of the latest one

 private:
  SchedulerManager::Loader loader(ServingOptions options) {
    SchedulerConfig& scheduler = options.engine.scheduler;
    if (scheduler.pool_blocks == 0) scheduler.pool_blocks = 256;
    return make_model_loader(options, pool_, clock_);
  }

  SystemClock clock_;
  ComputePool pool_{2};
  SchedulerManager manager_;
  ModelLease lease_;
};

TEST(VectorsTest, AreThoseOfTransformers) {
  const Json models = recorded();
  ServingOptions options;
  options.model.precision = Precision::kF32;
  for (const auto& [family, cases] : models.items()) {
    Served served(golden(family), options);
    ASSERT_EQ(cases.size(), 3U);
    for (const Json& c : cases) {
      const auto prompt = c["prompt"].get<std::vector<TokenId>>();
      const std::vector<float> last = served.vector_of(prompt, Pooling::kLast);
      const std::vector<float> mean = served.vector_of(prompt, Pooling::kMean);
      EXPECT_GE(testing::cosine(last, c["last"].get<std::vector<double>>()), 0.9999999) << family;
      EXPECT_GE(testing::cosine(mean, c["mean"].get<std::vector<double>>()), 0.9999999) << family;
      // What a model that ranks would say with these two tokens as yes and no.
      const TokenId ids[] = {c["yes"].get<TokenId>(), c["no"].get<TokenId>()};
      auto rows = Decoder::head_rows(served->model().source(), ids);
      ASSERT_TRUE(rows.ok()) << rows.message();
      RankHead head;
      head.yes = (*rows)[0];
      head.no = (*rows)[1];
      head.logit_scale = served->model().decoder().spec().logit_scale;
      head.logit_softcap = served->model().decoder().spec().logit_softcap;
      EXPECT_NEAR(head.score(last), c["p_yes"].get<double>(), 1e-5) << family;
    }
  }
}

std::vector<std::vector<TokenId>> many_prompts() {
  std::vector<std::vector<TokenId>> prompts;
  for (uint32_t n = 0; n < 12; ++n) {
    std::vector<TokenId>& prompt = prompts.emplace_back();
    for (uint32_t i = 0; i < 5 + n * 12; ++i) {
      // Half of them share a beginning of several blocks.
      prompt.push_back(static_cast<TokenId>((i * 31 + (n % 2 == 0 || i > 100 ? n : 0)) % 250));
    }
  }
  return prompts;
}

// Chunks, company, what is cached, and whether there is a batch at all: none of it changes a bit.
TEST(VectorsTest, AreTheSameBytesInWhateverCompany) {
  const auto prompts = many_prompts();
  const auto alone_with = [&](ServingOptions options, Pooling pooling) {
    Served served(golden("qwen3"), std::move(options));
    std::vector<std::vector<float>> vectors;
    for (const auto& prompt : prompts) vectors.push_back(served.vector_of(prompt, pooling));
    return vectors;
  };
  ServingOptions by_token;
  by_token.engine.scheduler.step_tokens = 1;
  ServingOptions no_batching;
  no_batching.enable_batching = false;
  ServingOptions no_cache;
  no_cache.engine.scheduler.prefix_cache = false;
  for (const Pooling pooling : {Pooling::kLast, Pooling::kMean}) {
    const auto expected = alone_with(no_cache, pooling);
    ASSERT_EQ(expected.front().size(), 128U);
    EXPECT_EQ(alone_with(by_token, pooling), expected);
    EXPECT_EQ(alone_with(no_batching, pooling), expected);
    Served served(golden("qwen3"));
    for (int round = 0; round < 2; ++round) {  // cold, then warm
      std::vector<RequestHandle> handles;
      for (const auto& prompt : prompts) handles.push_back(served.submit(prompt, pooling));
      for (size_t i = 0; i < handles.size(); ++i) {
        EXPECT_EQ(read(handles[i]).end.hidden, expected[i]) << round << ", " << i;
      }
    }
    // What is cached of a prompt is not computed again for its last row; for the mean it is.
    EXPECT_EQ(served.vector_of(prompts.back(), pooling), expected.back());
    EXPECT_EQ(served.cached_tokens > 0, pooling == Pooling::kLast);
    // Another kind of request, whose tokens are in the cache, finds the same.
    GenerationRequest text;
    text.prompt = prompts.back();
    text.max_tokens = 3;
    RequestHandle handle = served->submit(std::move(text), {}).value();
    (void)read(handle);
    EXPECT_EQ(served.vector_of(prompts.back(), pooling), expected.back());
  }
}

TEST(VectorsTest, APromptMayFillTheContext) {
  Served served(golden("llama"));
  const std::vector<TokenId> whole(1024, 7), beyond(1025, 7);
  EXPECT_EQ(served.vector_of(whole, Pooling::kLast).size(), 128U);
  GenerationRequest wanted;
  wanted.prompt = beyond;
  wanted.pooling = Pooling::kLast;
  const auto refused = served->submit(std::move(wanted), {});
  EXPECT_EQ(refused.status().code(), Code::kOutOfRange);
  EXPECT_THAT(refused.message(), HasSubstr("1025"));
}

// ---- what files say ----

VectorFacts facts_of_gguf(std::optional<uint32_t> type, bool causal = true,
                          std::optional<VectorKind> otherwise = {}) {
  const testing::TestFolder folder;
  testing::GgufWriter writer;
  writer.string("general.architecture", "qwen3");
  if (type) writer.u32("qwen3.pooling_type", *type);
  if (!causal) writer.scalar("qwen3.attention.causal", gguf::ValueType::kBool, uint8_t{0});
  folder.write("m.gguf", writer.build());
  const auto source = open_model(folder / "m.gguf");
  EXPECT_TRUE(source.ok()) << source.message();
  return read_vectors(*source, otherwise);
}

TEST(VectorFactsTest, AreThoseOfAGgufFile) {
  EXPECT_EQ(facts_of_gguf(1).kind, VectorKind::kMean);
  EXPECT_EQ(facts_of_gguf(3).kind, VectorKind::kLast);
  EXPECT_EQ(facts_of_gguf(3).from, "qwen3.pooling_type");
  EXPECT_EQ(facts_of_gguf(4).kind, VectorKind::kRank);
  EXPECT_EQ(facts_of_gguf(0).kind, std::nullopt);
  EXPECT_TRUE(facts_of_gguf({}).status.ok());
  EXPECT_THAT(facts_of_gguf(2).status.message(), HasSubstr("pooling_type is 2"));
  EXPECT_THAT(facts_of_gguf(9).status.message(), HasSubstr("is 9"));
  EXPECT_THAT(facts_of_gguf(3, false).status.message(), HasSubstr("not causal"));
  // The option is for those that say nothing.
  EXPECT_EQ(facts_of_gguf(0, true, VectorKind::kMean).kind, VectorKind::kMean);
  EXPECT_EQ(facts_of_gguf(3, true, VectorKind::kMean).kind, VectorKind::kLast);
  EXPECT_EQ(facts_of_gguf(2, true, VectorKind::kMean).kind, std::nullopt);
}

VectorFacts facts_of_folder(const Json& pooling, const Json& modules = {}, const Json& more = {}) {
  const testing::TestFolder folder;
  const std::string path = testing::write_tiny_model(folder);
  if (!pooling.is_null()) folder.write("tiny/1_Pooling/config.json", pooling.dump());
  if (!modules.is_null()) folder.write("tiny/modules.json", modules.dump());
  if (!more.is_null()) {
    Json config = Json::parse(std::ifstream(path + "/config.json"));
    config.update(more);
    folder.write("tiny/config.json", config.dump());
  }
  const auto source = open_model(path);
  EXPECT_TRUE(source.ok()) << source.message();
  return read_vectors(*source);
}

Json module(const char* type, const char* path) {
  return {{"type", std::string("sentence_transformers.models.") + type}, {"path", path}};
}

TEST(VectorFactsTest, AreThoseOfAFolder) {
  const Json last = {{"pooling_mode_lasttoken", true}, {"pooling_mode_mean_tokens", false}};
  const Json mean = {{"pooling_mode_lasttoken", false}, {"pooling_mode_mean_tokens", true}};
  EXPECT_EQ(facts_of_folder({}).kind, std::nullopt);
  EXPECT_EQ(facts_of_folder(last).kind, VectorKind::kLast);
  EXPECT_EQ(facts_of_folder(last).from, "1_Pooling/config.json");
  EXPECT_EQ(facts_of_folder(mean).kind, VectorKind::kMean);
  EXPECT_EQ(facts_of_folder({{"pooling_mode", "lasttoken"}}).kind, VectorKind::kLast);
  EXPECT_THAT(facts_of_folder({{"pooling_mode_cls_token", true}}).status.message(),
              HasSubstr("'cls_token'"));
  EXPECT_FALSE(
      facts_of_folder({{"pooling_mode_lasttoken", true}, {"pooling_mode_mean_tokens", true}})
          .status.ok());
  EXPECT_FALSE(facts_of_folder(Json::object()).status.ok());
  EXPECT_FALSE(facts_of_folder({{"pooling_mode_lasttoken", "yes"}}).status.ok());
  EXPECT_THAT(facts_of_folder(last, {}, {{"is_causal", false}}).status.message(),
              HasSubstr("not causal"));
  const Json modules = {module("Transformer", ""), module("Pooling", "1_Pooling"),
                        module("Normalize", "2_Normalize")};
  EXPECT_EQ(facts_of_folder(last, modules).kind, VectorKind::kLast);
  const Json dense = {module("Transformer", ""), module("Pooling", "1_Pooling"),
                      module("Dense", "2_Dense")};
  EXPECT_THAT(facts_of_folder(last, dense).status.message(), HasSubstr("Dense"));
  // A path that leads elsewhere is not followed.
  EXPECT_EQ(facts_of_folder({}, Json::array({module("Pooling", "../tiny/1_Pooling")})).kind,
            std::nullopt);
}

// The tiny model's tensors, changed on their way into a folder of another name.
std::string copy_model(const testing::TestFolder& folder, const std::string& name,
                       const std::function<std::string(const std::string&)>& rename,
                       const std::function<void(testing::SafetensorsWriter&)>& add = {}) {
  const std::string path = testing::write_tiny_model(folder, name + "-whole");
  const auto whole = open_model(path);
  EXPECT_TRUE(whole.ok()) << whole.message();
  testing::SafetensorsWriter writer;
  for (const NamedTensor& tensor : whole->tensors()) {
    const std::string called = rename(tensor.name);
    if (called.empty()) continue;
    std::vector<float> values(tensor.view.bytes.size() / sizeof(float));
    std::memcpy(values.data(), tensor.view.bytes.data(), tensor.view.bytes.size());
    writer.tensor(called, "F32", {tensor.view.shape.dims().begin(), tensor.view.shape.dims().end()},
                  values);
  }
  if (add) add(writer);
  std::filesystem::create_directories(folder / name);
  for (const char* file : {"/config.json", "/tokenizer.json"}) {
    std::filesystem::copy_file(path + file, (folder / name) + file);
  }
  folder.write(name + "/model.safetensors", writer.build());
  return folder / name;
}

TEST(VectorFactsTest, AModelMayBeSavedWithoutItsHead) {
  const testing::TestFolder folder;
  Served bare(copy_model(folder, "bare", [](const std::string& name) {
    return name == "lm_head.weight" ? "" : name.substr(std::string("model.").size());
  }));
  Served served(testing::write_tiny_model(folder));
  const std::vector<TokenId> prompt = {5, 6, 7, 8, 9, 10};
  EXPECT_EQ(bare.vector_of(prompt, Pooling::kMean), served.vector_of(prompt, Pooling::kMean));
}

TEST(VectorFactsTest, AFileMayHaveTheRowsOfItsLabels) {
  const testing::TestFolder folder;
  std::vector<float> rows(128);
  for (size_t i = 0; i < rows.size(); ++i)
    rows[i] = static_cast<float>(i % 5) - 2 * (i < 64 ? 1 : 0);
  const auto same = [](const std::string& name) { return name; };
  const auto path = copy_model(folder, "rank", same, [&](testing::SafetensorsWriter& writer) {
    writer.tensor("cls.output.weight", "F32", {2, 64}, rows);
    writer.tensor("cls.output.bias", "F32", {2}, std::vector<float>{0.25F, -1});
  });
  ServingOptions options;
  options.model.vectors = VectorKind::kRank;
  Served served(path, options);
  const RankHead* head = served->model().rank_head();
  ASSERT_NE(head, nullptr) << served->model().vectors().status.message();
  const std::vector<float> hidden = served.vector_of({5, 6, 7, 8}, Pooling::kLast);
  double yes = 0.25, no = -1;
  for (size_t i = 0; i < 64; ++i) {
    yes += double{rows[i]} * double{hidden[i]};
    no += double{rows[64 + i]} * double{hidden[i]};
  }
  EXPECT_NEAR(head->score(hidden), std::exp(yes) / (std::exp(yes) + std::exp(no)), 1e-12);
  const auto wrong = copy_model(folder, "wrong", same, [&](testing::SafetensorsWriter& writer) {
    writer.tensor("cls.output.weight", "F32", {64, 2}, rows);
  });
  Served refused(wrong, options);
  EXPECT_EQ(refused->model().rank_head(), nullptr);
  EXPECT_THAT(refused->model().vectors().status.message(), HasSubstr("[2, 64]"));
}

}  // namespace
}  // namespace skein
