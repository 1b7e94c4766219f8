// Many requests on a pool that is far too small for them, against the same requests run alone: the
// answers must be the same, token by token (T4 in the test plan).
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "engine/loading/loaded_model.h"

namespace skein {

struct PressureSetting {
  bool prefix_cache = true;
  uint32_t step_tokens = 64;
  uint32_t threads = 2;
  bool mixed_classes = false;
  uint32_t pool_blocks = 64;
  uint32_t max_batch = 32;
  std::string device = "cpu";
  uint64_t form_cache_bytes = 0;           // of the automaton and the masks of a form; 0: as usual
  std::optional<std::string> isa = {};     // as BackendOptions has it
  std::optional<uint64_t> form_work = {};  // as ModelRunner takes it

  std::string name() const;
};

struct PressureReport {
  uint32_t requests = 0;
  uint32_t different = 0;
  std::string first_difference;
  uint64_t preemptions = 0;
  uint64_t class_preemptions = 0;
  uint64_t prefix_hit_tokens = 0;
  uint64_t put_off = 0;
  std::vector<std::vector<TokenId>> answers;
};

// The requests, with what each of them answers when it runs alone.
class PressureLoad {
 public:
  // Prompts share beginnings, answers have up to `longest` tokens, half of the requests draw with a
  // seed. The first `alone` of them are run alone too. With `forms` each of them has one.
  PressureLoad(LoadedModel& model, uint32_t requests, uint32_t longest, uint32_t alone = UINT32_MAX,
               bool forms = false);

  // With keys and values as in the model that was given.
  PressureReport run(const std::string& model_path, const PressureSetting& setting) const;

 private:
  struct Request {
    std::vector<TokenId> prompt;
    SamplingParams sampling;
    uint32_t max_tokens = 0;
    std::optional<FormSpec> form = {};
    std::vector<TokenId> alone;
    bool ran_alone = false;
  };
  std::vector<std::shared_ptr<const Form>> forms_for(const LoadedModel& model,
                                                     const PressureSetting& setting) const;

  KvType kv_type_;
  std::vector<Request> requests_;
};

}  // namespace skein
