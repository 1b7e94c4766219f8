// What model files say about their tokenizers, right and wrong, and the stop set.
#include <functional>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <string>
#include <vector>

#include "engine/loading/load_text.h"
#include "engine/models.h"
#include "format/gguf_writer.h"
#include "format/safetensors_writer.h"

namespace skein {
namespace {

// A folder with the smallest weights there are.
class Folder {
 public:
  Folder() {
    folder_.write("model.safetensors",
                  testing::safetensors_bytes(
                      R"({"x": {"dtype": "F32", "shape": [1], "data_offsets": [0, 4]}})", 4));
    write("config.json", R"({"model_type": "llama", "eos_token_id": 2})");
    write("tokenizer.json", R"({"added_tokens": [
        {"id": 1, "content": "<s>", "special": true}, {"id": 2, "content": "</s>", "special": true},
        {"id": 3, "content": "<|im_end|>", "special": false},
        {"id": 4, "content": "<tool>", "special": false}],
      "pre_tokenizer": {"type": "ByteLevel", "add_prefix_space": false, "use_regex": true},
      "decoder": {"type": "ByteLevel"},
      "model": {"type": "BPE", "vocab": {"a": 0, "<eos>": 5}, "merges": []}})");
  }
  void write(std::string_view name, std::string_view text) { folder_.write(name, text); }
  Result<LoadedTokenizer> load() const {
    auto source = open_model(folder_.path());
    if (!source.ok()) return source.status();
    return load_tokenizer(*source);
  }

 private:
  testing::TestFolder folder_;
};

TEST(LoadTokenizer, CollectsTheStopsOfEveryFile) {
  Folder folder;
  folder.write("generation_config.json", R"({"eos_token_id": [2, 4]})");
  folder.write("tokenizer_config.json",
               R"({"bos_token": {"content": "<s>"}, "eos_token": "</s>"})");
  const auto loaded = folder.load();
  ASSERT_TRUE(loaded.ok()) << loaded.message();
  EXPECT_EQ(loaded->bos, 1);
  EXPECT_EQ(loaded->eos, 2);
  // <|im_end|> is the family's; the piece <eos> is only text here.
  EXPECT_EQ(loaded->stop_ids, (std::vector<TokenId>{2, 3, 4}));
}

TEST(LoadTokenizer, NobodyCanTypeAStop) {
  const auto loaded = Folder().load();
  ASSERT_TRUE(loaded.ok()) << loaded.message();
  EXPECT_EQ(loaded->stop_ids, (std::vector<TokenId>{2, 3}));
  const Tokenizer& tokenizer = loaded->tokenizer;
  EXPECT_EQ(*tokenizer.encode("a<|im_end|>a"), (std::vector<TokenId>{0, 0}));
  EXPECT_EQ(*tokenizer.encode("a<tool>"), (std::vector<TokenId>{0, 4}));
  EXPECT_EQ(*tokenizer.encode("a<|im_end|>", {.parse_special = true}),
            (std::vector<TokenId>{0, 3}));
}

TEST(LoadTokenizer, StopsOutsideTheVocabularyAreRefused) {
  Folder folder;
  folder.write("generation_config.json", R"({"eos_token_id": [2, 6]})");
  const auto loaded = folder.load();
  ASSERT_FALSE(loaded.ok());
  EXPECT_NE(
      loaded.message().find("generation_config.json: eos_token_id has 6, the vocabulary has 6"),
      std::string::npos)
      << loaded.message();
}

TEST(LoadTokenizer, ErrorsNameTheFolder) {
  Folder folder;
  folder.write("tokenizer.json", R"({"model": {"type": "WordLevel"}})");
  const auto loaded = folder.load();
  ASSERT_FALSE(loaded.ok());
  EXPECT_NE(loaded.message().find("LoadTokenizer.ErrorsNameTheFolder"), std::string::npos);
  EXPECT_NE(loaded.message().find("'WordLevel'"), std::string::npos) << loaded.message();
}

// A GGUF file with a tokenizer of one kind; `change` spoils it.
Result<LoadedTokenizer> load_gguf(const std::string& model,
                                  const std::function<void(testing::GgufWriter&)>& change) {
  const testing::TestFolder folder;
  testing::GgufWriter file;
  file.string("general.architecture", "llama").string("tokenizer.ggml.model", model);
  change(file);
  file.tensor({.name = "w", .dims = {32}, .type = 0});
  auto source = open_model(folder.write("m.gguf", file.build()));
  if (!source.ok()) return source.status();
  return load_tokenizer(*source);
}

using Type = gguf::ValueType;

TEST(GgufTokenizer, ReadsByteLevelBpe) {
  const auto loaded = load_gguf("gpt2", [](testing::GgufWriter& file) {
    file.string("tokenizer.ggml.pre", "llama-bpe")
        .strings("tokenizer.ggml.tokens", {"h", "e", "l", "o", "Ġ", "w", "r", "d", "he", "ll",
                                           "hell", "hello", "Ġw", "Ã", "©", "Ã©", "<|end|>"})
        .array<int32_t>("tokenizer.ggml.token_type", Type::kInt32,
                        {1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 3})
        .strings("tokenizer.ggml.merges", {"h e", "l l", "he ll", "hell o", "Ġ w", "Ã ©"})
        .u32("tokenizer.ggml.eos_token_id", 16);
  });
  ASSERT_TRUE(loaded.ok()) << loaded.message();
  const Tokenizer& tokenizer = loaded->tokenizer;
  EXPECT_EQ(*tokenizer.encode("hello world"), (std::vector<TokenId>{11, 12, 3, 6, 2, 7}));
  EXPECT_EQ(*tokenizer.encode("helloé"), (std::vector<TokenId>{11, 15}));
  EXPECT_EQ(*tokenizer.encode("hé<|end|>lo", {.parse_special = true}),
            (std::vector<TokenId>{0, 15, 16, 2, 3}));
  EXPECT_EQ(*tokenizer.decode(std::vector<TokenId>{11, 12, 3, 6, 2, 7, 15}), "hello worldé");
  EXPECT_EQ(loaded->stop_ids, (std::vector<TokenId>{16}));
  EXPECT_TRUE(tokenizer.is_control(16));
}

TEST(GgufTokenizer, ReadsSentencePiece) {
  const auto loaded = load_gguf("llama", [](testing::GgufWriter& file) {
    file.strings("tokenizer.ggml.tokens", {"<unk>", "<s>", "</s>", "<0x0A>", "<0xC3>", "<0xA9>",
                                           "▁", "a", "b", "ab", "▁ab", "<|end|>"})
        .array<float>("tokenizer.ggml.scores", Type::kFloat32,
                      {0, 0, 0, 0, 0, 0, -10, -11, -12, -1, -2, 0})
        .array<int32_t>("tokenizer.ggml.token_type", Type::kInt32,
                        {2, 3, 3, 6, 6, 6, 1, 1, 1, 1, 1, 3})
        .u32("tokenizer.ggml.bos_token_id", 1)
        .u32("tokenizer.ggml.eos_token_id", 2)
        .u32("tokenizer.ggml.eot_token_id", 11);
  });
  ASSERT_TRUE(loaded.ok()) << loaded.message();
  const Tokenizer& tokenizer = loaded->tokenizer;
  EXPECT_EQ(*tokenizer.encode("ab b"), (std::vector<TokenId>{10, 6, 8}));
  EXPECT_EQ(*tokenizer.encode("ba", {.add_special = true}), (std::vector<TokenId>{1, 6, 8, 7}));
  EXPECT_EQ(*tokenizer.encode("a\né"), (std::vector<TokenId>{6, 7, 3, 4, 5}));
  EXPECT_EQ(*tokenizer.decode(std::vector<TokenId>{10, 6, 8, 4, 5}), "ab bé");
  EXPECT_EQ(loaded->bos, 1);
  EXPECT_EQ(loaded->stop_ids, (std::vector<TokenId>{2, 11}));
  const auto ids = tokenizer.encode("<|end|></s>");
  ASSERT_TRUE(ids.ok()) << ids.message();
  EXPECT_FALSE(ids->empty());
  for (const TokenId id : *ids) EXPECT_FALSE(id == 11 || id == 2);
}

TEST(GgufTokenizer, ReadsUnigram) {
  const auto loaded = load_gguf("t5", [](testing::GgufWriter& file) {
    file.strings("tokenizer.ggml.tokens", {"<pad>", "</s>", "<unk>", "▁", "a", "b", "▁ab"})
        .array<float>("tokenizer.ggml.scores", Type::kFloat32, {0, 0, 0, -2, -2, -2, -3})
        .array<int32_t>("tokenizer.ggml.token_type", Type::kInt32, {3, 3, 2, 1, 1, 1, 1})
        .scalar<uint8_t>("tokenizer.ggml.remove_extra_whitespaces", Type::kBool, 1);
  });
  ASSERT_TRUE(loaded.ok()) << loaded.message();
  EXPECT_EQ(*loaded->tokenizer.encode("  ab  ba x ", {.add_special = true}),
            (std::vector<TokenId>{6, 3, 5, 4, 3, 2, 1}));
  EXPECT_EQ(loaded->stop_ids, (std::vector<TokenId>{1}));
}

// U+2581 before what begins a word, and nothing before what goes on with one.
TEST(GgufTokenizer, ReadsWordPieces) {
  const std::vector<std::string> pieces = {"[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "▁un",
                                           "aff",   "able",  "▁a",    "▁,",    "▁cafe"};
  const auto write = [&](testing::GgufWriter& file) -> testing::GgufWriter& {
    return file.strings("tokenizer.ggml.tokens", pieces)
        .u32("tokenizer.ggml.unknown_token_id", 1)
        .u32("tokenizer.ggml.cls_token_id", 2)
        .u32("tokenizer.ggml.seperator_token_id", 3)
        .u32("tokenizer.ggml.padding_token_id", 0)
        .u32("tokenizer.ggml.mask_token_id", 4);
  };
  const auto loaded = load_gguf("bert", write);
  ASSERT_TRUE(loaded.ok()) << loaded.message();
  const Tokenizer& tokenizer = loaded->tokenizer;
  EXPECT_EQ(*tokenizer.encode("UNaffable, Café!", {.add_special = true}),
            (std::vector<TokenId>{2, 5, 6, 7, 9, 10, 1, 3}));
  EXPECT_EQ(*tokenizer.encode("aff"), (std::vector<TokenId>{1}));  // it begins no word
  EXPECT_EQ(*tokenizer.decode(std::vector<TokenId>{2, 8, 5, 6, 7, 9, 8, 3}), "a unaffable, a");
  EXPECT_EQ(*tokenizer.encode("[CLS][SEP]"), (std::vector<TokenId>{1, 1, 1, 1, 1, 1}));
  const auto cased = load_gguf("bert", [&](testing::GgufWriter& file) {
    write(file).scalar<uint8_t>("tokenizer.ggml.normalizer.lowercase", Type::kBool, 0);
  });
  ASSERT_TRUE(cased.ok()) << cased.message();
  EXPECT_EQ(*cased->tokenizer.encode("A a café"), (std::vector<TokenId>{1, 8, 1}));
}

TEST(GgufTokenizer, FaultsAreCleanErrors) {
  const auto message = [](const std::string& model, const auto& change) {
    const auto loaded = load_gguf(model, change);
    return loaded.ok() ? std::string("no error") : loaded.message();
  };
  using Writer = testing::GgufWriter;
  const auto bpe = [](Writer& file) -> Writer& {
    return file.strings("tokenizer.ggml.tokens", {"a", "b", "ab"});
  };
  EXPECT_THAT(message("rwkv", bpe), ::testing::HasSubstr("tokenizer.ggml.model 'rwkv'"));
  EXPECT_THAT(message("gpt2", [](Writer&) {}), ::testing::HasSubstr("tokenizer.ggml.tokens"));
  EXPECT_THAT(message("gpt2", bpe), ::testing::HasSubstr("tokenizer.ggml.merges"));
  EXPECT_THAT(message("llama", bpe), ::testing::HasSubstr("tokenizer.ggml.scores"));
  EXPECT_THAT(message("bert", bpe), ::testing::HasSubstr("no unknown token"));
  EXPECT_THAT(
      message("gpt2", [&](Writer& file) { bpe(file).strings("tokenizer.ggml.merges", {"ab"}); }),
      ::testing::HasSubstr("merge 0 ('ab') has no space"));
  EXPECT_THAT(
      message("gpt2", [&](Writer& file) { bpe(file).strings("tokenizer.ggml.merges", {"a c"}); }),
      ::testing::HasSubstr("'a' with 'c'"));
  EXPECT_THAT(
      message(
          "gpt2",
          [&](Writer& file) {
            bpe(file).strings("tokenizer.ggml.merges", {"a b"}).string("tokenizer.ggml.pre", "odd");
          }),
      ::testing::HasSubstr("tokenizer.ggml.pre 'odd'"));
  EXPECT_THAT(message("gpt2",
                      [&](Writer& file) {
                        bpe(file)
                            .strings("tokenizer.ggml.merges", {"a b"})
                            .u32("tokenizer.ggml.eos_token_id", 3);
                      }),
              ::testing::HasSubstr("eos_token_id is 3, the vocabulary has 3"));
  EXPECT_THAT(
      message("llama",
              [&](Writer& file) {
                bpe(file).array<float>("tokenizer.ggml.scores", Type::kFloat32, {0});
              }),
      ::testing::HasSubstr("tokenizer.ggml.scores has 1 entries, tokenizer.ggml.tokens has 3"));
  EXPECT_THAT(message("llama",
                      [&](Writer& file) {
                        bpe(file)
                            .array<float>("tokenizer.ggml.scores", Type::kFloat32, {0, 0, 0})
                            .array<int32_t>("tokenizer.ggml.token_type", Type::kInt32, {1, 7, 1});
                      }),
              ::testing::HasSubstr("token 1 has the type 7"));
}

// A short list of types was read beyond its end; a long one hid which token a type belongs to.
TEST(GgufTokenizer, EveryTokenHasItsType) {
  for (const std::string model : {"gpt2", "llama", "t5"}) {
    for (const size_t count : {size_t{0}, size_t{1}, size_t{3}, size_t{5}}) {
      const auto loaded = load_gguf(model, [&](testing::GgufWriter& file) {
        file.strings("tokenizer.ggml.tokens", {"a", "b", "ab", "c"})
            .strings("tokenizer.ggml.merges", {"a b"})
            .array<float>("tokenizer.ggml.scores", Type::kFloat32, {0, 0, 0, 0})
            .array<int32_t>("tokenizer.ggml.token_type", Type::kInt32,
                            std::vector<int32_t>(count, 1));
      });
      ASSERT_FALSE(loaded.ok()) << model << ", " << count << " types";
      EXPECT_THAT(loaded.message(), ::testing::HasSubstr("m.gguf: tokenizer.ggml.token_type has " +
                                                         std::to_string(count) +
                                                         " entries, tokenizer.ggml.tokens has 4"));
    }
  }
}

}  // namespace
}  // namespace skein
