#include <cstdio>
#include <fmt/format.h>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "apps/answer.h"
#include "apps/commands.h"
#include "apps/files.h"
#include "apps/options.h"
#include "apps/terminal.h"
#include "base/clock.h"
#include "generate/prompt.h"

namespace skein::apps {
namespace {

struct RunOptions {
  ModelFlags model;
  SamplingFlags sampling;
  std::string prompt;
  std::string prompt_file;
  uint32_t max_tokens = 128;
  std::vector<std::string> stops;
  std::string speculation = "auto";
};

constexpr const char* kRunManual =
    "The text is taken as it is, without a chat template: base models go on with it, and\n"
    "`skein chat` is for talking. Control tokens spelled out in it are plain text.\n"
    "The continuation goes to stdout as it is generated, speeds to stderr. Ctrl-C ends it "
    "(130).\n\n"
    "  skein run --model default -p 'Once upon a time' -n 64\n"
    "  skein run --model default -p 'Once upon a time' -n 64 --temperature 0\n"
    "  skein run --model default -p 'The colours are' --top-p 0.9 --seed 7 --stop '.'\n"
    "  skein run --model m.gguf --prompt-file story.txt\n"
    "  git log -1 | skein run --model m.gguf -p - -n 200";

Result<std::string> prompt_text(const RunOptions& options) {
  if (!options.prompt_file.empty()) return read_file(options.prompt_file);
  return options.prompt == "-" ? read_stdin() : options.prompt;
}

CommandResult run(const RunOptions& options) {
  SKEIN_ASSIGN(const std::string text, prompt_text(options));
  const std::unique_ptr<ComputePool> pool = make_pool(options.model);
  SKEIN_ASSIGN(const auto model, load_model(options.model, {}, *pool));
  SKEIN_TRY(model->tokenizer_status());
  const LoadedTokenizer* const tokenizer = model->tokenizer();
  const SystemClock clock;
  const PromptBuilder prompts(*model, model->decoder().max_context(), clock);
  SKEIN_ASSIGN(const std::vector<TokenId> ids, prompts.encode_text(text));
  SKEIN_ASSIGN(const auto inference, DirectInference::create(*model, clock));
  DirectRequest request;
  request.prompt = ids;
  SKEIN_ASSIGN(request.sampling, apply(options.sampling, model->sampling_defaults()));
  request.max_tokens = options.max_tokens;
  request.speculates = speculates(options.speculation, *model);

  const InterruptFlag interrupt;
  ReadOptions read = {.decode = {.continuation = true}, .stops = options.stops};
  SKEIN_ASSIGN(const Answer answer, stream_answer(*inference, *tokenizer, request, std::move(read),
                                                  interrupt.pressed(), stdout));
  std::fputc('\n', stdout);
  std::fflush(stdout);
  fmt::print(stderr, "{}", describe_speed(answer.outcome));
  if (answer.outcome.reason == FinishReason::kClient) return CommandResult::interrupted();
  return CommandResult();
}

}  // namespace

void add_run(CLI::App& app, CommandResult& result) {
  auto options = std::make_shared<RunOptions>();
  CLI::App* command = app.add_subcommand("run", "Continue a text");
  command->footer(kRunManual);
  auto* prompt =
      command->add_option("-p,--prompt", options->prompt, "The text to continue; '-' reads stdin");
  auto* file = command->add_option("--prompt-file", options->prompt_file, "A file that holds it");
  prompt->excludes(file);
  add_model_options(*command, options->model);
  command->add_option("-n,--max-tokens", options->max_tokens, "Tokens to generate at most")
      ->check(CLI::Range(1U, 1U << 24))
      ->capture_default_str();
  command->add_option("--stop", options->stops, "End before this text; repeatable, up to 16 times")
      ->allow_extra_args(false);
  add_speculation_option(*command, options->speculation);
  add_sampling_options(*command, options->sampling, options->model);
  command->callback([options, prompt, file, &result] {
    if (prompt->empty() && file->empty()) {
      check_usage(invalid_argument("one of --prompt and --prompt-file is needed"));
    }
    check_usage(apply(options->sampling, {}).status());
    result = run(*options);
  });
}

}  // namespace skein::apps
