#include <algorithm>
#include <cmath>
#include <cstdio>
#include <fmt/format.h>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "apps/commands.h"
#include "apps/eval_kl.h"
#include "apps/model_options.h"
#include "apps/npy.h"
#include "apps/token_lists.h"
#include "engine/evaluation/evaluate.h"
#include "format/quote.h"

namespace skein::apps {
namespace {

using TokenLists = std::vector<std::vector<TokenId>>;

struct LogitsOptions {
  ModelFlags model;
  std::string tokens;
  uint32_t greedy = 0;
  bool json = false;
  bool all = false;
  std::string out;
};

constexpr const char* kLogitsManual =
    "FILE is a JSON list of id lists. With --json the result is a list with one object per id\n"
    "list: {\"logits_last\": [...], \"greedy\": [...]}, the logits after the last id and the\n"
    "likeliest tokens from there on. With --all --out F.npy the logits of every position go to a\n"
    "NumPy file, float32 [ids of all lists, vocabulary].\n\n"
    "  echo '[[1, 2, 3], [4]]' > ids.json\n"
    "  skein eval logits --model default --tokens ids.json --greedy 8 --json\n"
    "  skein eval logits --model default --tokens ids.json --precision f32 --all --out all.npy";

struct ListResult {
  std::vector<float> logits_last;
  std::vector<TokenId> greedy;
};

TokenId likeliest(std::span<const float> logits) {
  return static_cast<TokenId>(std::max_element(logits.begin(), logits.end()) - logits.begin());
}

// Infinities and NaN, which JSON cannot say, as null.
void append_number(float number, std::string& out) {
  out += std::isfinite(number) ? fmt::format("{}", number) : "null";
}

void print_json(const std::vector<ListResult>& results) {
  std::string text = "[";
  for (const ListResult& result : results) {
    text += text.size() > 1 ? ",\n{\"logits_last\": [" : "{\"logits_last\": [";
    for (size_t i = 0; i < result.logits_last.size(); ++i) {
      if (i > 0) text += ", ";
      append_number(result.logits_last[i], text);
    }
    text += fmt::format("], \"greedy\": [{}]}}", fmt::join(result.greedy, ", "));
  }
  fmt::print("{}]\n", text);
}

// The likeliest next tokens of every list.
void print_table(const LoadedModel& model, const TokenLists& lists,
                 const std::vector<ListResult>& results) {
  constexpr size_t kShown = 5;
  for (size_t i = 0; i < results.size(); ++i) {
    const std::vector<float>& logits = results[i].logits_last;
    std::vector<TokenId> order(logits.size());
    for (size_t t = 0; t < order.size(); ++t) order[t] = static_cast<TokenId>(t);
    const auto shown = order.begin() + static_cast<ptrdiff_t>(std::min(kShown, order.size()));
    std::partial_sort(order.begin(), shown, order.end(), [&](TokenId a, TokenId b) {
      const float x = logits[static_cast<size_t>(a)], y = logits[static_cast<size_t>(b)];
      return x != y ? x > y : a < b;
    });
    fmt::print("list {}, {} ids\n", i, lists[i].size());
    for (auto id = order.begin(); id != shown; ++id) {
      const bool has_text =
          model.tokenizer() != nullptr && model.tokenizer()->tokenizer.contains(*id);
      const std::string piece =
          has_text ? printable(model.tokenizer()->tokenizer.piece(*id), 40) : "";
      fmt::print("  {:>8}  {:>12.6f}  {}\n", *id, logits[static_cast<size_t>(*id)], piece);
    }
    if (!results[i].greedy.empty()) fmt::print("  then {}\n", fmt::join(results[i].greedy, " "));
  }
}

Status eval_logits(const LogitsOptions& options) {
  SKEIN_ASSIGN(const TokenLists lists, read_token_lists(options.tokens));
  const std::unique_ptr<ComputePool> pool = make_pool(options.model);
  const BatchLimits limits = options.all ? kAllLogits : BatchLimits{};
  SKEIN_ASSIGN(const auto model, load_model(options.model, limits, *pool));

  std::vector<size_t> first_row(lists.size() + 1, 0);
  for (size_t i = 0; i < lists.size(); ++i) first_row[i + 1] = first_row[i] + lists[i].size();
  std::optional<NpyWriter> writer;
  std::vector<ListResult> results(lists.size());
  Status written;
  const auto on_row = [&](const Evaluator::Row& row) {
    const size_t length = lists[row.list].size();
    ListResult& result = results[row.list];
    if (row.position + 1 == length) result.logits_last.assign(row.logits.begin(), row.logits.end());
    if (row.position + 1 >= length && result.greedy.size() < options.greedy) {
      result.greedy.push_back(likeliest(row.logits));
    }
    if (writer && written.ok() && row.position < length) {
      written = writer->write_row(first_row[row.list] + row.position, row.logits);
    }
  };
  Evaluator evaluator(*model);
  const Evaluator::Options what = {.all = options.all, .greedy = options.greedy};
  SKEIN_TRY(evaluator.check(lists, what));
  if (options.all) {
    auto made = NpyWriter::create(options.out, first_row.back(), model->decoder().spec().vocab);
    if (!made.ok()) return made.status();
    writer.emplace(std::move(*made));
  }
  SKEIN_TRY(evaluator.run(lists, what, on_row));
  SKEIN_TRY(std::move(written));
  if (writer) SKEIN_TRY(writer->close());
  if (options.json) {
    print_json(results);
  } else {
    print_table(*model, lists, results);
  }
  return {};
}

void add_logits(CLI::App& eval, CommandResult& result) {
  auto options = std::make_shared<LogitsOptions>();
  CLI::App* command = eval.add_subcommand("logits", "Print the logits that follow token ids");
  command->footer(kLogitsManual);
  add_model_options(*command, options->model);
  command->add_option("--tokens", options->tokens, "JSON file: a list of id lists")->required();
  command->add_option("--greedy", options->greedy, "Generate that many likeliest tokens")
      ->check(CLI::Range(0U, 1U << 24));
  command->add_flag("--json", options->json, "Print JSON");
  auto* all = command->add_flag("--all", options->all, "Write the logits of every position");
  auto* out = command->add_option("--out", options->out, "The NumPy file for --all");
  all->needs(out);
  out->needs(all);
  command->callback([options, &result] { result = eval_logits(*options); });
}

}  // namespace

void add_eval(CLI::App& app, CommandResult& result) {
  CLI::App* eval = app.add_subcommand("eval", "Look at what a model computes, number by number");
  eval->require_subcommand(1);
  add_logits(*eval, result);
  add_eval_kl(*eval, result);
}

}  // namespace skein::apps
