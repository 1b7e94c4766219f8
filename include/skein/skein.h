// libskein: a language model in your own process, with skein's continuous batching.
//
//   skein::Model model = skein::Model::load("SmolLM2-135M-Instruct.Q4_1.gguf");
//   skein::Stream answer = model.chat({{"user", "Why is the sky blue?"}});
//   for (std::string text; answer.next(text);) std::cout << text << std::flush;
//
// Any number of threads may submit at once; requests that run at the same time share every pass
// over the weights, and each gets the same text as if it ran alone. A Stream is read by one thread
// at a time. Link with -lskein.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <stdexcept>
#include <string>
#include <vector>

#if defined(__GNUC__)
#define SKEIN_PUBLIC __attribute__((visibility("default")))
#else
#define SKEIN_PUBLIC
#endif

namespace skein {

// What load, chat, complete, embed and next throw: the file, field or limit, and both numbers.
class SKEIN_PUBLIC Error : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

struct LoadOptions {
  unsigned threads = 0;                // 0: one per core
  unsigned batch_max_batch_size = 32;  // requests that run at a time
  unsigned batch_block_pool_size = 0;  // KV blocks of 32 tokens; 0: from the free memory
  unsigned max_context = 0;            // 0: what the model was made for
  std::string precision = "default";   // f32, default or high
  // How embed() makes vectors where the model's files do not say: mean (of all tokens), last, or
  // cls (of an encoder, the first).
  std::string pooling;
  // What requests get that do not say how to draw: auto (the values of the model's files or
  // authors, else temperature 0.7, top_p 0.95, min_p 0.05), or openai: temperature 1 and nothing
  // else.
  std::string sampling_defaults = "auto";
  // Tokens that are guessed and checked several at a time: off, ngram (from the text so far and
  // earlier answers), or auto (likewise, and by the draft model; where it pays). It changes no
  // token.
  std::string speculation = "auto";
  std::string draft_model;  // path of a small model with the same vocabulary; empty: none
};

enum class RequestClass { kHigh = 0, kNormal = 1, kLow = 2 };

// What is absent is as LoadOptions::sampling_defaults says.
struct GenerateOptions {
  std::optional<unsigned> max_tokens;  // absent: to the end of the context
  std::optional<float> temperature;    // 0: greedy
  std::optional<float> top_p;
  std::optional<unsigned> top_k;
  std::optional<float> min_p;
  std::optional<std::uint64_t> seed;  // absent: another answer each time
  std::vector<std::string> stop;      // at most 16; they are not part of the answer
  RequestClass request_class = RequestClass::kNormal;

  // What the answer must look like: at most one of these. What of a schema cannot be enforced is an
  // Error that names it.
  std::string json_schema;          // as text; "{\"type\":\"object\"}" is any JSON object
  std::string regex;                // of the whole answer
  std::string grammar;              // GBNF
  std::vector<std::string> choice;  // one of these texts

  // Of a chat: what the model may call, a JSON list as OpenAI's `tools`. A call that begins is
  // bound to its tool's schema.
  std::string tools;
  std::string tool_choice = "auto";  // auto, none, required, or the name of one
  bool parallel_tool_calls = true;
  std::optional<unsigned> reasoning_budget;  // tokens after which a thought is ended
};

struct ToolCall {
  std::string id;
  std::string name;
  std::string arguments;  // JSON text
};

struct Message {
  std::string role;  // system, user, assistant or tool
  std::string content;
  std::vector<ToolCall> tool_calls = {};  // of an assistant
  std::string tool_call_id = {};          // of a tool: the call whose result the content is
  std::string reasoning = {};             // of an assistant
};

struct Summary {
  std::string finish_reason;  // stop, tool_calls, length, cancelled, timed_out or error
  unsigned prompt_tokens = 0;
  unsigned cached_tokens = 0;  // of the prompt, found in the prefix cache
  unsigned generated_tokens = 0;
  std::string reasoning = {};  // the thoughts, which are no part of the text
  std::vector<ToolCall> tool_calls = {};
  // What of a schema is not enforced, as JSON pointers: "/properties/a/not", "/tools/0/...".
  std::vector<std::string> relaxed = {};
};

// One answer on its way. Letting go of it cancels what is left.
class SKEIN_PUBLIC Stream {
 public:
  Stream(Stream&&) noexcept;
  Stream& operator=(Stream&&) noexcept;
  ~Stream();

  // Waits for more text and puts it into `text`; false at the end. Throws when the request failed.
  bool next(std::string& text);
  void cancel();
  // After next() returned false.
  const Summary& summary() const;

 private:
  friend class Model;
  struct Impl;
  explicit Stream(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

class SKEIN_PUBLIC Model {
 public:
  // `path` is a GGUF file or a Hugging Face folder.
  static Model load(const std::string& path, const LoadOptions& options = {});
  Model(Model&&) noexcept;
  Model& operator=(Model&&) noexcept;
  ~Model();  // its streams must be gone

  Stream chat(const std::vector<Message>& messages, const GenerateOptions& options = {});
  Stream complete(const std::string& prompt, const GenerateOptions& options = {});
  // One vector of length 1 for each text, in their order; the same whatever else runs. Waits for
  // all of them. `dimensions`: the first ones of each; 0: all. Throws for a model that makes no
  // embeddings.
  std::vector<std::vector<float>> embed(const std::vector<std::string>& texts,
                                        unsigned dimensions = 0);

 private:
  struct Impl;
  explicit Model(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

}  // namespace skein
