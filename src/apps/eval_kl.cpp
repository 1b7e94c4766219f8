#include "apps/eval_kl.h"

#include <fmt/format.h>
#include <functional>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "apps/model_options.h"
#include "apps/npy.h"
#include "apps/token_lists.h"
#include "engine/evaluation/divergence.h"
#include "engine/evaluation/evaluate.h"

namespace skein::apps {
namespace {

using TokenLists = std::vector<std::vector<TokenId>>;

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

void print(const Divergence::Summary& s, bool json) {
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
  print(divergence.summary(), options.json);
  return {};
}

}  // namespace

void add_eval_kl(CLI::App& eval, CommandResult& result) {
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

}  // namespace skein::apps
