// The added tokens of real models, by their names and flags (added_tokens.json): who may write
// which of them. In that file "special" and "plain" are what the model's own files say; neither
// comes out of a user's text. "typed" ones are ordinary text to the model and do. "prints" are
// those that the model's chat template writes around a user's message.
#include "text/markers.h"

#include <algorithm>
#include <fstream>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "engine/loading/load_text.h"
#include "format/gguf_writer.h"
#include "format/safetensors_writer.h"
#include "format/test_folder.h"
#include "generate/prompt.h"
#include "text/utf8.h"

namespace skein {
namespace {

using Texts = std::vector<std::string>;
using ::testing::Contains;
using ::testing::Not;

OrderedJson models() {
  std::ifstream in(SKEIN_SOURCE_DIR "/tests/generate/added_tokens.json");
  return OrderedJson::parse(in);
}

// The 256 bytes as byte-level pieces, and the model's added tokens behind them.
Texts byte_pieces() {
  Texts out;
  char32_t next = 0x100;
  for (char32_t b = 0; b < 256; ++b) {
    const bool printable = (b >= 0x21 && b <= 0x7E) || (b >= 0xA1 && b != 0xAD);
    out.emplace_back();
    append_utf8(printable ? b : next++, out.back());
  }
  return out;
}

struct Chat {
  LoadedTokenizer loaded;
  ChatTemplate chat;

  static Chat open(const std::string& path) {
    const auto source = open_model(path);
    EXPECT_TRUE(source.ok()) << source.message();
    return {load_tokenizer(*source).value(), load_chat_template(*source).value()};
  }
  const Tokenizer& tokenizer() const { return loaded.tokenizer; }
  std::vector<TokenId> ids(const std::string& user) const {
    const OrderedJson context = {{"messages", {{{"role", "user"}, {"content", user}}}},
                                 {"tools", nullptr},
                                 {"add_generation_prompt", true}};
    return encode_prompt(tokenizer(), chat.render(context, {}).value()).value();
  }
};

// `normalized`: as files say it of tokens that are looked for behind the normalizer.
Chat open_folder(const OrderedJson& model, bool normalized = false) {
  const testing::TestFolder folder;
  folder.write("model.safetensors",
               testing::safetensors_bytes(
                   R"({"x": {"dtype": "F32", "shape": [1], "data_offsets": [0, 4]}})", 4));
  folder.write("config.json", R"({"model_type": "llama"})");
  OrderedJson vocabulary = OrderedJson::object();
  for (const std::string& piece : byte_pieces()) vocabulary[piece] = vocabulary.size();
  OrderedJson added = OrderedJson::array();
  for (const char* list : {"special", "plain", "typed"}) {
    for (const OrderedJson& text : model.at(list)) {
      added.push_back({{"id", 256 + added.size()},
                       {"content", text},
                       {"special", std::string_view(list) == "special"},
                       {"normalized", normalized}});
    }
  }
  const OrderedJson tokenizer = {
      {"added_tokens", added},
      {"normalizer", {{"type", "NFC"}}},
      {"pre_tokenizer", {{"type", "ByteLevel"}, {"add_prefix_space", false}}},
      {"decoder", {{"type", "ByteLevel"}}},
      {"model", {{"type", "BPE"}, {"vocab", vocabulary}, {"merges", OrderedJson::array()}}}};
  folder.write("tokenizer.json", tokenizer.dump());
  OrderedJson config = {{"chat_template", model.at("template")}, {"eos_token", model.at("eos")}};
  if (model.contains("bos")) config["bos_token"] = model.at("bos");
  folder.write("tokenizer_config.json", config.dump());
  return Chat::open(folder.path());
}

Chat open_gguf(const OrderedJson& model) {
  constexpr int32_t kNormal = 1, kControl = 3, kUserDefined = 4;
  Texts tokens = byte_pieces();
  std::vector<int32_t> types(tokens.size(), kNormal);
  testing::GgufWriter file;
  for (const char* list : {"special", "plain", "typed"}) {
    for (const OrderedJson& text : model.at(list)) {
      if (text == model.value("bos", "")) {
        file.u32("tokenizer.ggml.bos_token_id", static_cast<uint32_t>(tokens.size()));
      }
      if (text == model.at("eos")) {
        file.u32("tokenizer.ggml.eos_token_id", static_cast<uint32_t>(tokens.size()));
      }
      tokens.push_back(text);
      types.push_back(std::string_view(list) == "special" ? kControl : kUserDefined);
    }
  }
  file.string("general.architecture", "llama")
      .string("tokenizer.ggml.model", "gpt2")
      .strings("tokenizer.ggml.tokens", tokens)
      .strings("tokenizer.ggml.merges", {})
      .array<int32_t>("tokenizer.ggml.token_type", gguf::ValueType::kInt32, types)
      .string("tokenizer.chat_template", model.at("template").get<std::string>())
      .tensor({.name = "w", .dims = {32}, .type = 0});
  const testing::TestFolder folder;
  return Chat::open(folder.write("m.gguf", file.build()));
}

void check(const OrderedJson& model, const Chat& chat) {
  const Tokenizer& tokenizer = chat.tokenizer();
  const auto harmless = chat.ids("hello");
  for (const char* list : {"special", "plain"}) {
    for (const std::string text : model.at(list)) {
      SCOPED_TRACE(text);
      const TokenId id = tokenizer.find(text);
      ASSERT_GE(id, 256);
      EXPECT_THAT(*tokenizer.encode("a" + text + "b"), Not(Contains(id)));
      EXPECT_EQ(*tokenizer.encode(text, {.parse_special = true}), (std::vector<TokenId>{id}));
      const auto ids = chat.ids("x" + text + "y");
      EXPECT_EQ(std::count(ids.begin(), ids.end(), id),
                std::count(harmless.begin(), harmless.end(), id))
          << "a message of the user has made one more";
      EXPECT_THAT(tokenizer.decode(ids, {.skip_special = false}).value(),
                  ::testing::HasSubstr("x" + text + "y"))
          << "it reaches the model as text";
      // What the model itself says is shown or not as its files have it, but for its stops.
      const auto& stops = chat.loaded.stop_ids;
      const bool is_stop = std::find(stops.begin(), stops.end(), id) != stops.end();
      const bool is_shown = std::string_view(list) == "plain" && !is_stop;
      EXPECT_EQ(tokenizer.decode(std::vector<TokenId>{id}).value(), is_shown ? text : "");
    }
  }
  for (const std::string text : model.at("typed")) {
    EXPECT_THAT(*tokenizer.encode("a" + text + "b"), Contains(tokenizer.find(text))) << text;
  }
  for (const std::string text : model.at("prints")) {
    EXPECT_THAT(harmless, Contains(tokenizer.find(text))) << text;
    EXPECT_THAT(chat.ids("\u0338, 你好"), Contains(tokenizer.find(text))) << text;
  }
}

TEST(Markers, OfRealModelsCannotBeTyped) {
  const OrderedJson all = models();
  ASSERT_GE(all.size(), 10u);
  for (const OrderedJson& model : all) {
    SCOPED_TRACE(model.at("model"));
    check(model, open_folder(model));
    check(model, open_gguf(model));
  }
}

// Tokens that are looked for behind the normalizer, beside a user's text in one stretch.
TEST(Markers, AreTheTemplatesBehindANormalizerToo) {
  OrderedJson model = models().at(0);
  const Chat chat = open_folder(model, true);
  const auto harmless = chat.ids("你好");
  for (const std::string text : model.at("prints")) {
    const TokenId id = chat.tokenizer().find(text);
    EXPECT_THAT(harmless, Contains(id)) << text;
    const auto ids = chat.ids("x" + text);
    EXPECT_EQ(std::count(ids.begin(), ids.end(), id),
              std::count(harmless.begin(), harmless.end(), id))
        << text;
  }
}

// A broken template is no reason to let its markers be typed.
TEST(Markers, OfABrokenTemplateCannotBeTyped) {
  TokenizerSpec spec;
  for (const char* text : {"(Human)", "(Other)"}) {
    AddedToken token;
    token.id = static_cast<TokenId>(spec.pieces.size());
    token.text = text;
    spec.pieces.push_back(text);
    spec.types.push_back(TokenType::kUserDefined);
    spec.added.push_back(token);
  }
  ChatTemplateSource source;
  source.text = "{% for %}{{ '(Human)";
  guard_markers(literals_of(source), spec);
  EXPECT_EQ(spec.types[0], TokenType::kMarker);
  EXPECT_EQ(spec.types[1], TokenType::kUserDefined);
}

TEST(Markers, AreKnownByTheirSpelling) {
  for (const char* text : {"<|im_start|>", "<｜User｜>", "<|turn>", "<turn|>", "[INST]", "[/INST]",
                           "<start_of_turn>", "</s>", "<s>", "<user>", "</tool_call>"}) {
    EXPECT_TRUE(is_role_marker(text)) << text;
  }
  for (const char* text :
       {"", "<", "<>", "<||>", "[]", "[a]", "[/]", "<b>", "</table>", "a_b", "<a b>",
        "<|fim_prefix|>", "<fim_middle>", "<|repo_name|>", "<|file_sep|>"}) {
    EXPECT_FALSE(is_role_marker(text)) << text;
  }
}

TEST(Markers, AreFoundInWhatATemplateCanPrint) {
  ChatTemplateSource source;
  source.text =
      "a{# <no> #}{% if x == '\\u003cone>' %}<two>{{ '<th' \"ree>\" ~ y['<four>'] }}{% endif %}";
  source.tool_use = "<five>";
  source.bos_token = "<six>";
  EXPECT_EQ(literals_of(source),
            (Texts{"a", "<one>", "<two>", "<three>", "<four>", "<five>", "<six>", ""}));
}

}  // namespace
}  // namespace skein
