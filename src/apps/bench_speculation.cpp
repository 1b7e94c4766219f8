// skein bench --speculation
#include "apps/bench_speculation.h"

#include <algorithm>
#include <fmt/format.h>
#include <utility>

#include "bench/model_target.h"
#include "bench/report.h"
#include "bench/speculation.h"
#include "engine/speculation/draft_model.h"
#include "generate/prompt.h"

namespace skein::apps {
namespace {

constexpr uint32_t kSpeculationStepTokens = 256;

// With the model's chat template where it has one, as plain text where it has none.
Result<std::vector<TokenId>> prompt_of(const bench::SpeculationItem& item, const LoadedModel& model,
                                       const PromptBuilder& prompts) {
  if (!model.chat_template_status().ok()) {
    return prompts.encode_text(item.question + "\n\n" + item.beginning);
  }
  OrderedJson messages = OrderedJson::array();
  messages.push_back({{"role", "user"}, {"content", item.question}});
  Conversation conversation;
  conversation.continues = !item.beginning.empty();
  if (conversation.continues) {
    messages.push_back({{"role", "assistant"}, {"content", item.beginning}});
  }
  conversation.context = chat_context(std::move(messages));
  return prompts.encode_chat(std::move(conversation));
}

Result<std::vector<bench::SpeculationRequest>> requests_of(
    const bench::SpeculationWorkload& workload, const LoadedModel& model, uint32_t max_tokens,
    const Clock& clock) {
  const PromptBuilder prompts(model, model.decoder().max_context(), clock);
  std::vector<bench::SpeculationRequest> requests;
  for (const bench::SpeculationItem& item : workload.items) {
    bench::SpeculationRequest request;
    SKEIN_ASSIGN(request.prompt, prompt_of(item, model, prompts));
    request.sampling = model.sampling_defaults();
    request.sampling.temperature = workload.temperature;
    request.max_tokens = max_tokens;
    requests.push_back(std::move(request));
  }
  return requests;
}

void print_line(const bench::SpeculationWorkload& workload, uint32_t level,
                const bench::SpeculationResult& result, bool markdown) {
  const double share = result.drafted_tokens == 0
                           ? 0
                           : 100 * static_cast<double>(result.accepted_tokens) /
                                 static_cast<double>(result.drafted_tokens);
  const char* const format =
      markdown ? "| {} | {} | {:.1f} | {:.1f} | {:.3f} | {:.3f} | {} | {} | {:.0f} % |\n"
               : "{:<8} {:>7} {:>10.1f} {:>10.1f} {:>7.3f} {:>7.3f} {:>8} {:>8} {:>7.0f} %\n";
  fmt::print(fmt::runtime(format), workload.name, level, result.off_tokens_per_second,
             result.on_tokens_per_second, result.ratio, result.cpu_ratio, result.tokens,
             result.drafted_tokens, share);
  std::fflush(stdout);
}

void print_head(bool markdown) {
  if (markdown) {
    fmt::print(
        "| workload | streams | off, tokens/s | on, tokens/s | ratio | by CPU time | tokens | "
        "guessed | "
        "right |\n"
        "|---|---|---|---|---|---|---|---|---|\n");
  } else {
    fmt::print("{:<8} {:>7} {:>10} {:>10} {:>7} {:>7} {:>8} {:>8} {:>9}\n", "workload", "streams",
               "off, t/s", "on, t/s", "ratio", "by CPU", "tokens", "guessed", "right");
  }
}

}  // namespace

CommandResult compare_speculation(const SpeculationBench& options) {
  const Speculation how = speculation_of(options.how).value_or(Speculation::kAuto);
  const uint32_t batch = *std::max_element(options.levels.begin(), options.levels.end());
  SKEIN_ASSIGN(BenchModel loaded,
               load_bench_model(options.model, {.rows = kSpeculationStepTokens + batch,
                                                .logit_rows = batch + kStepDrafts}));
  SKEIN_TRY(loaded.model->tokenizer_status());
  std::shared_ptr<LoadedModel> draft;
  if (!options.draft_model.empty()) {
    ModelFlags flags = options.model.model;
    flags.model = options.draft_model;
    SKEIN_ASSIGN(draft, load_model(flags, {.rows = kSpeculationStepTokens, .logit_rows = batch},
                                   *loaded.pool));
    SKEIN_TRY(DraftModel::check_vocabulary(*draft, options.draft_model, *loaded.model,
                                           options.model.name()));
  }
  const SystemClock clock;
  SKEIN_ASSIGN(const auto target, bench::ModelTarget::create(loaded.model, *loaded.pool,
                                                             {.prefix_cache = false,
                                                              .step_tokens = kSpeculationStepTokens,
                                                              .step_drafts = kStepDrafts,
                                                              .draft_model = draft},
                                                             clock));
  print_head(options.markdown);
  for (const uint32_t level : options.levels) {
    for (const bench::SpeculationWorkload& workload : bench::speculation_workloads()) {
      SKEIN_ASSIGN(const auto requests,
                   requests_of(workload, *loaded.model, options.max_tokens, clock));
      std::vector<bench::BenchRequest> largest(level);
      for (size_t i = 0; i < largest.size(); ++i) {
        const bench::SpeculationRequest& request = requests[i % requests.size()];
        largest[i] = {request.prompt, request.max_tokens};
      }
      SKEIN_ASSIGN(const auto service, target->start(level, largest));
      SKEIN_ASSIGN(
          const bench::SpeculationResult result,
          bench::measure_speculation(*service, requests, level, options.rounds, how, clock));
      print_line(workload, level, result, options.markdown);
    }
  }
  return {};
}

}  // namespace skein::apps
