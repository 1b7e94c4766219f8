#include <algorithm>
#include <cmath>
#include <cstdio>
#include <fmt/format.h>
#include <functional>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "apps/commands.h"
#include "apps/files.h"
#include "apps/npy.h"
#include "apps/options.h"
#include "engine/evaluation/evaluate.h"
#include "format/json.h"
#include "format/quote.h"

namespace skein::apps {
namespace {

using TokenLists = std::vector<std::vector<TokenId>>;

// For runs that want the logits of every row: their memory is rows x vocabulary.
constexpr DecoderLimits kAllLogits = {.rows = 64, .logit_rows = 64};

Result<TokenId> read_id(const Json& value) {
  if (value.is_number_integer()) {
    const auto id = value.get<int64_t>();
    if (id >= 0 && id <= INT32_MAX) return static_cast<TokenId>(id);
  }
  return invalid_argument("{} is no token id", printable(value.dump(), 40));
}

// A file with a JSON list of id lists. Errors name the file and the place in it: the list's index,
// and the id's. Whether the ids are the model's is the model's business.
Result<TokenLists> read_token_lists(const std::string& path) {
  SKEIN_ASSIGN(const std::string text, read_file(path));
  const Result<Json> json = parse_json(text);
  if (!json.ok()) return invalid_argument("{}: {}", path, json.message());
  if (!json->is_array()) return invalid_argument("{}: not a list of id lists", path);
  if (json->empty()) return invalid_argument("{}: the list of id lists is empty", path);
  TokenLists lists;
  for (size_t i = 0; i < json->size(); ++i) {
    const Json& list = (*json)[i];
    if (!list.is_array()) return invalid_argument("{}: list {} is not a list of ids", path, i);
    if (list.empty()) return invalid_argument("{}: list {} is empty", path, i);
    lists.emplace_back().reserve(list.size());
    for (size_t j = 0; j < list.size(); ++j) {
      const Result<TokenId> id = read_id(list[j]);
      if (!id.ok()) return invalid_argument("{}: list {}, index {}: {}", path, i, j, id.message());
      lists.back().push_back(*id);
    }
  }
  return lists;
}

// --- skein eval logits ---

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
  const DecoderLimits limits = options.all ? kAllLogits : DecoderLimits{};
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

// --- skein eval kl: how far a run lies from the float32 run of the same weights ---

struct KlOptions {
  ModelFlags model;
  std::string tokens;
  std::string reference;
  bool json = false;
};

constexpr const char* kEvalKlManual =
    "Runs every id list twice, at --precision and in float32 arithmetic on the dequantized\n"
    "weights, and compares the distributions at every position: KL(float32 || run) in nats, the\n"
    "share of positions with the same likeliest token, and the perplexity of the ids. With\n"
    "--reference the logits to compare with come from a NumPy file instead, as `skein eval logits\n"
    "--all` writes it: another build's, another program's, or those of an exact computation.\n\n"
    "  skein eval kl --model default --tokens ids.json --precision default\n"
    "  skein eval kl --model default --tokens ids.json --precision f32 --reference exact.npy";

// Logits of the reference at a position of a list.
using ReferenceRow = std::function<std::span<const float>(size_t list, uint32_t position)>;

Status compare(LoadedModel& model, const TokenLists& lists, size_t list,
               const ReferenceRow& reference, Divergence& divergence) {
  Evaluator evaluator(model);
  const std::vector<TokenId>& ids = lists[list];
  return evaluator.run(std::span(&ids, 1), {.all = true}, [&](const Evaluator::Row& row) {
    const TokenId next = row.position + 1 < ids.size() ? ids[row.position + 1] : kNoToken;
    divergence.add(reference(list, row.position), row.logits, next);
  });
}

Status compare_with_file(LoadedModel& model, const TokenLists& lists, const std::string& path,
                         Divergence& divergence) {
  SKEIN_ASSIGN(const NpyMatrix matrix, NpyMatrix::open(path));
  std::vector<size_t> first_row(lists.size() + 1, 0);
  for (size_t i = 0; i < lists.size(); ++i) first_row[i + 1] = first_row[i] + lists[i].size();
  const uint32_t vocab = model.decoder().spec().vocab;
  if (matrix.rows() != first_row.back() || matrix.columns() != vocab) {
    return invalid_argument("{} is {} x {}; the lists have {} ids, the vocabulary {} tokens", path,
                            matrix.rows(), matrix.columns(), first_row.back(), vocab);
  }
  const auto row = [&](size_t list, uint32_t position) {
    return matrix.row(first_row[list] + position);
  };
  for (size_t i = 0; i < lists.size(); ++i) SKEIN_TRY(compare(model, lists, i, row, divergence));
  return {};
}

// One list at a time, so that the reference's logits of one list are held and no more.
Status compare_with_run(LoadedModel& model, LoadedModel& reference, const TokenLists& lists,
                        Divergence& divergence) {
  const size_t vocab = model.decoder().spec().vocab;
  std::vector<float> held;
  const auto held_row = [&](size_t, uint32_t position) {
    return std::span<const float>(held).subspan(position * vocab, vocab);
  };
  Evaluator evaluator(reference);
  for (size_t i = 0; i < lists.size(); ++i) {
    held.resize(lists[i].size() * vocab);
    SKEIN_TRY(evaluator.run(std::span(&lists[i], 1), {.all = true}, [&](const Evaluator::Row& row) {
      std::copy(row.logits.begin(), row.logits.end(),
                held.begin() + static_cast<ptrdiff_t>(row.position * vocab));
    }));
    SKEIN_TRY(compare(model, lists, i, held_row, divergence));
  }
  return {};
}

void print_divergence(const Divergence::Summary& s, bool json) {
  if (json) {
    const nlohmann::ordered_json out = {{"positions", s.positions},
                                        {"mean_kl", s.mean_kl},
                                        {"p99_kl", s.p99_kl},
                                        {"max_kl", s.max_kl},
                                        {"same_top", s.same_top},
                                        {"perplexity", s.perplexity},
                                        {"reference_perplexity", s.reference_perplexity}};
    fmt::print("{}\n", out.dump());
    return;
  }
  fmt::print("positions             {}\n", s.positions);
  fmt::print("mean KL               {:.3e}\n", s.mean_kl);
  fmt::print("p99 KL                {:.3e}\n", s.p99_kl);
  fmt::print("largest KL            {:.3e}\n", s.max_kl);
  fmt::print("same top token        {:.2f} %\n", 100 * s.same_top);
  fmt::print("perplexity            {:.4f}\n", s.perplexity);
  fmt::print("reference perplexity  {:.4f}\n", s.reference_perplexity);
}

Status eval_kl(const KlOptions& options) {
  SKEIN_ASSIGN(const TokenLists lists, read_token_lists(options.tokens));
  const std::unique_ptr<ComputePool> pool = make_pool(options.model);
  SKEIN_ASSIGN(const auto model, load_model(options.model, kAllLogits, *pool));
  SKEIN_TRY(Evaluator(*model).check(lists, {.all = true}));
  Divergence divergence;
  if (!options.reference.empty()) {
    SKEIN_TRY(compare_with_file(*model, lists, options.reference, divergence));
  } else if (model->precision() == Precision::kF32 && model->kv_type() == KvType::kF32) {
    SKEIN_TRY(compare_with_run(*model, *model, lists, divergence));
  } else {
    ModelFlags flags = options.model;
    flags.precision = "f32";
    flags.kv_dtype = "f32";
    SKEIN_ASSIGN(const auto reference, load_model(flags, kAllLogits, *pool));
    SKEIN_TRY(compare_with_run(*model, *reference, lists, divergence));
  }
  print_divergence(divergence.summary(), options.json);
  return {};
}

void add_kl(CLI::App& eval, CommandResult& result) {
  auto options = std::make_shared<KlOptions>();
  CLI::App* command =
      eval.add_subcommand("kl", "Compare a run with the float32 run of the same weights");
  command->footer(kEvalKlManual);
  add_model_options(*command, options->model);
  command->add_option("--tokens", options->tokens, "JSON file: a list of id lists")->required();
  command->add_option("--reference", options->reference,
                      "NumPy file with the reference's logits, [ids of all lists, vocabulary]");
  command->add_flag("--json", options->json, "Print JSON");
  command->callback([options, &result] { result = eval_kl(*options); });
}

}  // namespace

void add_eval(CLI::App& app, CommandResult& result) {
  CLI::App* eval = app.add_subcommand("eval", "Look at what a model computes, number by number");
  eval->require_subcommand(1);
  add_logits(*eval, result);
  add_kl(*eval, result);
}

}  // namespace skein::apps
