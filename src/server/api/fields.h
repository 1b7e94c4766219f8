// The fields of a request: each with its type, its range, and an error that names it; and those
// that every endpoint that generates text shares.
//
//   Fields fields(body, "", problem);
//   params.n = fields.integer("n", 1, 128).value_or(1);
//   if (problem) return *problem;
//
// null is absent. The first error counts; after it everything reads as absent, so a parser need not
// look after every field. A whole number may be written 3.0; true is not 1; "3" is not 3.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/ids.h"
#include "base/time.h"
#include "engine/forms/form_spec.h"
#include "engine/sampling/sampling_params.h"
#include "engine/speculation/speculation.h"
#include "server/api/errors.h"
#include "server/json.h"

namespace skein::api {

using Problem = std::optional<Error>;

class Fields {
 public:
  // `path` stands before the names in errors: "messages[2]". `object` and `problem` outlive this.
  // An `object` that is none is an error that names `path`.
  Fields(const json::Value& object, std::string path, Problem& problem);

  // The member; nullptr when it is absent or null, or after an error.
  const json::Value* find(std::string_view name) const;
  bool has(std::string_view name) const { return find(name) != nullptr; }

  std::optional<bool> boolean(std::string_view name) const;
  std::optional<int64_t> integer(std::string_view name, int64_t low, int64_t high) const;
  std::optional<double> number(std::string_view name, double low, double high) const;
  std::optional<std::string> string(std::string_view name, size_t max_bytes = SIZE_MAX) const;
  std::string required_string(std::string_view name, size_t max_bytes = SIZE_MAX) const;
  // One of the words; the index of it.
  std::optional<size_t> choice(std::string_view name,
                               std::initializer_list<std::string_view> words) const;
  const json::Value* object(std::string_view name) const;
  const json::Value* array(std::string_view name, size_t max_items) const;
  // Each item with its path, until there is an error.
  void for_each(std::string_view name, size_t max_items,
                const std::function<void(const json::Value&, const std::string&)>& take) const;
  std::vector<int32_t> token_ids(std::string_view name, size_t max_items) const;

  void fail(std::string_view name, std::string message) const;
  void missing(std::string_view name) const { fail(name, "This field is required."); }
  std::string path_of(std::string_view name) const;
  Problem& problem() const { return problem_; }

 private:
  const json::Value& object_;
  const std::string path_;
  Problem& problem_;
};

// A whole number, however it is written; nullopt for anything else and what no int64 can hold.
std::optional<int64_t> whole_number(const json::Value& value);

// A JSON array of token ids at `path`.
std::vector<int32_t> read_token_ids(const json::Value& list, const std::string& path,
                                    Problem& problem);

// A body as JSON, which is to be an object.
Parsed<json::Value> parse_body(std::string_view body);

inline constexpr uint32_t kMaxChoices = 128;
inline constexpr size_t kMaxStopIds = 1024;
inline constexpr size_t kMaxLogitBias = 1024;
inline constexpr size_t kMaxAllowedIds = 1024;
inline constexpr size_t kMaxNameBytes = 512;  // of models, users, ids

// A form, and the field that asked for it.
struct AskedForm {
  FormSpec spec;
  std::string field;
};

// The turn that an answer ends, which is kept beside it.
struct KeptTurn {
  std::string input;     // a list of items, as JSON text
  std::string previous;  // the id of the response that it continues; empty: none
};

// The wishes of a request for its answer, whatever its prompt is.
struct AnswerOptions {
  std::string model;  // empty: the first
  std::optional<uint32_t> max_tokens;
  uint32_t n = 1;
  std::vector<std::string> stop;
  bool stream = false;
  bool include_usage = false;
  bool continuous_usage = false;
  bool return_token_ids = false;
  bool skip_special_tokens = true;
  bool timings_per_token = false;
  bool return_progress = false;
  bool include_reasoning = true;  // the answer shows its thoughts
  bool as_function_call = false;  // a call is told in the words of the old functions
  bool seal_reasoning = false;    // thoughts come once more, for clients to send back
  // Members of the request that the answer repeats, as JSON; nullptr: it repeats none.
  std::shared_ptr<const std::string> echo;
  std::shared_ptr<const KeptTurn> kept;    // nullptr: nothing of the answer is kept
  std::optional<TimeUs> timeout_us;        // for the whole request
  std::optional<uint64_t> seed;            // without one it is drawn
  std::optional<Speculation> speculation;  // without a word, the server's

  std::optional<AskedForm> form;  // what the answer must look like

  // For vLLM's face (server/grpc), which alone asks for it.
  struct Pieces {
    bool text = true;  // beside the ids
    bool prompt_ids = false;
    bool stop_text = false;  // the answer ends with the stop text that was met
  };
  Pieces pieces;
  bool goes_on = false;  // a space at the answer's start is a real one

  // Where the request says nothing, the model's defaults count.
  std::optional<float> temperature;
  std::optional<float> top_p;
  std::optional<uint32_t> top_k;
  std::optional<float> min_p;
  std::optional<float> typical_p;
  std::optional<float> repetition_penalty;
  // All else of the sampling; stop_ids are the request's own, unsorted ids of no known vocabulary.
  SamplingParams sampling;

  // Ready for validate(): with the model's `defaults` where the request says nothing, a drawn seed,
  // and the model's stop tokens.
  SamplingParams sampling_params(const SamplingParams& defaults, uint64_t drawn_seed) const;
};

// Sampling, stop, seed, n, stream, stream_options, timeout, model: OpenAI's names and the usual
// extras. Not max_tokens and logprobs, which differ between endpoints.
void read_answer_options(const Fields& fields, AnswerOptions& options);

// Seconds that the whole request may take.
std::optional<TimeUs> read_timeout(const Fields& fields);

// One field of a token count, at least 1.
std::optional<uint32_t> read_max_tokens(const Fields& fields, std::string_view name);

// A client's own notes: a few short strings with names; nullptr: none.
const json::Value* read_metadata(const Fields& fields);

// A string or a list of strings, none of them empty.
std::vector<std::string> read_stops(const Fields& fields, std::string_view name);

}  // namespace skein::api
