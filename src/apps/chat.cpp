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
#include "dialog/history.h"
#include "generate/answer_plan.h"
#include "generate/prompt.h"

namespace skein::apps {
namespace {

struct ChatOptions {
  ModelFlags model;
  SamplingFlags sampling;
  std::string system;
  std::string tools;  // a file
  std::optional<uint32_t> max_tokens;
  std::vector<std::string> stops;
  std::string speculation = "auto";
};

constexpr const char* kChatManual =
    "Type a message and Enter; the answer goes to stdout as it is generated. On a terminal lines\n"
    "can be edited, and the arrow keys bring back earlier ones; from a pipe every line is a\n"
    "message. Ctrl-C stops an answer, Ctrl-D leaves.\n\n"
    "A thought of the model, and a call of a tool, is dimmed; what you type behind a call is its\n"
    "result. From a pipe both go to stderr.\n\n"
    "  /reset  forget the conversation     /help  show this     /exit  leave\n\n"
    "  skein chat --model default\n"
    "  skein chat --model default --system 'You answer in one sentence.' --temperature 0.2\n"
    "  echo 'What is 2+2?' | skein chat --model default --temperature 0";

constexpr const char* kHelp =
    "/reset  forget the conversation\n"
    "/help   show this\n"
    "/exit   leave (or Ctrl-D)\n"
    "Ctrl-C  stop an answer\n";

// One conversation with one model.
class Chat {
 public:
  // `model` has a tokenizer.
  Chat(const ChatOptions& options, const LoadedModel& model, DirectInference& inference,
       SamplingParams sampling, OrderedJson tools, const Clock& clock)
      : options_(options),
        model_(model),
        tools_(std::move(tools)),
        prompts_(model, model.decoder().max_context(), clock),
        tokenizer_(*model.tokenizer()),
        inference_(inference),
        sampling_(std::move(sampling)) {
    reset();
  }

  void reset() {
    messages_ = OrderedJson::array();
    if (!options_.system.empty()) add("system", options_.system);
  }

  // Answers one message. What fails leaves the conversation as it was.
  Status say(const std::string& text, const InterruptFlag& interrupt) {
    const bool is_result = !messages_.empty() && messages_.back().contains("tool_calls");
    const OrderedJson call = is_result ? messages_.back()["tool_calls"][0] : OrderedJson();
    add(is_result ? "tool" : "user", text);
    if (is_result) messages_.back()["tool_call_id"] = call["id"];
    auto answer = this->answer(interrupt);
    if (!answer.ok()) {
      messages_.erase(messages_.size() - 1);
      return answer.status();
    }
    add("assistant", answer->text);
    if (!answer->calls.empty()) messages_.back()["tool_calls"] = std::move(answer->calls);
    return {};
  }

 private:
  void add(const char* role, const std::string& content) {
    messages_.push_back({{"role", role}, {"content", content}});
  }

  Result<Answer> answer(const InterruptFlag& interrupt) {
    Conversation conversation{chat_context(messages_)};
    conversation.context["tools"] = tools_;
    SKEIN_ASSIGN(const jinja::Rendered prompt, prompts_.render(std::move(conversation)));
    SKEIN_ASSIGN(const std::vector<TokenId> ids, prompts_.encode(prompt));
    const AnswerPlan plan(model_, {.tools = dialog::tools_of(tools_), .parallel = false},
                          prompts_.opens_thought(prompt));
    DirectRequest request = {ids, sampling_, options_.max_tokens};
    request.speculates = speculates(options_.speculation, model_);
    if (plan.has_form()) SKEIN_TRY(bind(plan, request));
    return stream_answer(inference_, tokenizer_, request,
                         {.stops = options_.stops,
                          .syntax = plan.syntax(),
                          .in_reasoning = plan.in_reasoning(),
                          .call_seed = messages_.size()},
                         interrupt.pressed(), stdout);
  }

  Status bind(const AnswerPlan& plan, DirectRequest& request) const {
    SKEIN_TRY(model_.forms()->prepare());
    std::optional<AnswerPlan::Refusal> refusal;
    request.form = plan.compile(refusal);
    if (!refusal) return {};
    return invalid_argument("the tools at {}: {}", refusal->error.where, refusal->error.message);
  }

  const ChatOptions& options_;
  const LoadedModel& model_;
  const OrderedJson tools_;
  const PromptBuilder prompts_;
  const LoadedTokenizer& tokenizer_;
  DirectInference& inference_;
  SamplingParams sampling_;
  OrderedJson messages_;
};

// False when the line asks to leave.
bool obey(const std::string& line, Chat& chat) {
  if (line == "/exit" || line == "/quit") return false;
  if (line == "/reset") {
    chat.reset();
    fmt::print(stderr, "The conversation is forgotten.\n");
  } else if (line == "/help") {
    fmt::print(stderr, "{}", kHelp);
  } else {
    fmt::print(stderr, "{}: no such command; /help lists them\n", line);
  }
  return true;
}

// From a pipe nobody is there to read on after a failure; at a terminal the conversation goes on.
CommandResult converse(Chat& chat, InterruptFlag& interrupt) {
  const std::unique_ptr<LineReader> reader = LineReader::create("> ");
  std::string line;
  while (true) {
    interrupt.clear();
    const LineReader::Event event = reader->read(line);
    if (event == LineReader::Event::kEnd) break;
    if (event == LineReader::Event::kInterrupt) {
      if (!reader->edits()) return CommandResult::interrupted();
      std::fputc('\n', stdout);
      continue;
    }
    if (line.empty()) continue;
    if (line.front() == '/') {
      if (!obey(line, chat)) return CommandResult();
      continue;
    }
    const Status said = chat.say(line, interrupt);
    std::fputc('\n', stdout);
    std::fflush(stdout);
    if (said.ok()) continue;
    if (!reader->edits()) return said;
    fmt::print(stderr, "skein: {}\n", said.message());
  }
  if (reader->edits()) std::fputc('\n', stdout);
  return CommandResult();
}

CommandResult chat(const ChatOptions& options) {
  const std::unique_ptr<ComputePool> pool = make_pool(options.model);
  SKEIN_ASSIGN(const auto model, load_model(options.model, {}, *pool));
  SKEIN_TRY(model->tokenizer_status());
  SKEIN_TRY(model->chat_template_status());
  const SystemClock clock;
  SKEIN_ASSIGN(const auto inference, DirectInference::create(*model, clock));
  SKEIN_ASSIGN(SamplingParams sampling, apply(options.sampling, model->sampling_defaults()));
  OrderedJson tools;
  if (!options.tools.empty()) {
    SKEIN_ASSIGN(const std::string text, read_file(options.tools));
    tools = OrderedJson::parse(text, nullptr, false);
    if (!tools.is_array()) return invalid_argument("{} holds no JSON list", options.tools);
  }
  Chat conversation(options, *model, *inference, std::move(sampling), std::move(tools), clock);
  InterruptFlag interrupt;
  return converse(conversation, interrupt);
}

}  // namespace

void add_chat(CLI::App& app, CommandResult& result) {
  auto options = std::make_shared<ChatOptions>();
  CLI::App* command = app.add_subcommand("chat", "Talk to a model");
  command->footer(kChatManual);
  add_model_options(*command, options->model);
  command->add_option("--system", options->system, "The system message");
  command->add_option("--tools", options->tools, "A file with a JSON list of tools, as OpenAI's");
  command->add_option("-n,--max-tokens", options->max_tokens, "Tokens of an answer at most")
      ->check(CLI::Range(1U, 1U << 24));
  command
      ->add_option("--stop", options->stops,
                   "End an answer before this text; repeatable, up to 16 times")
      ->allow_extra_args(false);
  add_speculation_option(*command, options->speculation);
  add_sampling_options(*command, options->sampling, options->model);
  command->callback([options, &result] {
    check_usage(apply(options->sampling, {}).status());
    result = chat(*options);
  });
}

}  // namespace skein::apps
