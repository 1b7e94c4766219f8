// A GenerateRequest as anybody may send it: whatever it is, it is refused by a field's name or
// becomes a request within every limit, and the same bytes become the same request.
#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <google/protobuf/stubs/logging.h>
#include <limits>
#include <string>

#include "server/api/fields.h"
#include "server/grpc/generate_request.h"
#include "server/kv_events/tenant_names.h"
#include "text/text_assembler.h"

namespace {

using skein::TokenId;
using skein::rpc::Generate;

void demand(bool is_so) {
  if (!is_so) std::abort();
}

bool are_ids(const std::vector<TokenId>& ids) {
  return std::all_of(ids.begin(), ids.end(), [](TokenId id) { return id >= 0; });
}

void check(const Generate& read, const vllm::GenerateRequest& message) {
  const auto& options = read.request.options;
  const auto& sampling = options.sampling;
  demand(read.request.prompts.size() == 1);
  if (const auto* ids = std::get_if<std::vector<TokenId>>(&read.request.prompts[0])) {
    const uint32_t last = message.truncate_prompt_tokens();
    demand(!ids->empty() && are_ids(*ids) && (last == 0 || ids->size() <= last));
  }
  demand(sampling.logit_bias.size() <= skein::api::kMaxLogitBias);
  demand(std::is_sorted(sampling.logit_bias.begin(), sampling.logit_bias.end(),
                        [](const auto& a, const auto& b) { return a.first < b.first; }));
  demand(are_ids(sampling.allowed) && are_ids(sampling.stop_ids));
  demand(sampling.stop_ids.size() <= skein::api::kMaxStopIds);
  demand(!options.max_tokens || sampling.min_tokens <= *options.max_tokens);
  demand(sampling.top_logprobs <= skein::kMaxTopLogprobs);
  demand(options.stop.size() <= skein::kMaxStops);
  for (const std::string& text : options.stop) {
    demand(!text.empty() && text.size() <= skein::kMaxStopBytes);
  }
  demand(read.terms.cache_salt.size() <= skein::TenantNames::kMaxBytes);
  // What has no meaning here was not dropped in silence.
  demand(message.sampling().num_sequences() <= 1 && message.media_size() == 0);
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  static const auto kNoHandler = google::protobuf::SetLogHandler(nullptr);
  (void)kNoHandler;
  vllm::GenerateRequest message;
  if (size > std::numeric_limits<int>::max() ||
      !message.ParseFromArray(data, static_cast<int>(size)))
    return 0;
  vllm::GenerateRequest once = message, again = message;
  auto read = skein::rpc::read_generate(once, true);
  auto other = skein::rpc::read_generate(again, false);
  demand(read.ok() == other.ok());
  if (!read.ok()) {
    demand(read.error().message == other.error().message &&
           read.error().param == other.error().param);
    demand(!read.error().message.empty());
    return 0;
  }
  check(read.value(), message);
  demand(read->request.prompts == other->request.prompts);
  demand(read->request.options.sampling.logit_bias.size() ==
         static_cast<size_t>(message.decoding().logit_bias_size()));
  return 0;
}
