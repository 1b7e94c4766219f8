#include <fmt/format.h>
#include <memory>
#include <string>
#include <vector>

#include "apps/commands.h"
#include "apps/files.h"
#include "dialog/find_format.h"
#include "engine/loading/load_text.h"
#include "engine/loading/sampling_defaults.h"
#include "engine/loading/vectors.h"
#include "format/quote.h"
#include "format/summary.h"
#include "format/weight_source.h"
#include "model/decoder.h"
#include "text/ordered_json.h"

namespace skein::apps {
namespace {

struct InspectOptions {
  std::string model;
  bool json = false;
  bool tensors = false;
};

// The lengths that people ask about, up to the model's own.
std::vector<uint64_t> context_lengths(const ModelSummary& summary) {
  const std::optional<uint64_t> longest = summary.shape_of("context");
  std::vector<uint64_t> lengths;
  for (const uint64_t length : {2048, 8192, 32'768, 131'072}) {
    if (!longest || length < *longest) lengths.push_back(length);
  }
  if (longest) lengths.push_back(*longest);
  return lengths;
}

double bits_per_parameter(uint64_t bytes, uint64_t parameters) {
  return parameters == 0 ? 0.0 : 8.0 * static_cast<double>(bytes) / static_cast<double>(parameters);
}

// 134515008 -> "134,515,008"
std::string grouped(uint64_t number) {
  std::string digits = std::to_string(number);
  for (size_t i = digits.size(); i > 3;) digits.insert(i -= 3, 1, ',');
  return digits;
}

// "134.5 M" and the like; the step from one unit to the next is 1,000 for counts, 1,024 for bytes.
std::string scaled(uint64_t number, double step, const std::vector<const char*>& units) {
  auto value = static_cast<double>(number);
  size_t unit = 0;
  while (value >= step && unit + 1 < units.size()) value /= step, ++unit;
  return unit == 0 ? fmt::format("{} {}", number, units[0])
                   : fmt::format("{:.1f} {}", value, units[unit]);
}

std::string bytes_text(uint64_t bytes) {
  return scaled(bytes, 1024, {"bytes", "KiB", "MiB", "GiB", "TiB", "PiB"});
}

void print_line(std::string_view label, const std::string& value) {
  fmt::print("{:<18}  {}\n", label, value);
}

void print_quantization(const ModelSummary& summary) {
  fmt::print("\n{:<28} {:>8} {:>18} {:>12} {:>6}\n", "Quantization", "tensors", "parameters",
             "size", "bits");
  for (const TypeShare& share : summary.types) {
    fmt::print("  {:<26} {:>8} {:>18} {:>12} {:>6.2f}\n", share.type, share.tensors,
               grouped(share.parameters), bytes_text(share.bytes),
               bits_per_parameter(share.bytes, share.parameters));
  }
}

void print_memory(const ModelSummary& summary) {
  if (!summary.kv_bytes_per_token) return;
  fmt::print("\n{:<28} {:>12} {:>16}\n", "Memory (16-bit KV)", "KV cache", "with weights");
  for (const uint64_t length : context_lengths(summary)) {
    const uint64_t kv = saturating_product(length, *summary.kv_bytes_per_token);
    fmt::print("  {:<26} {:>12} {:>16}\n", grouped(length) + " tokens", bytes_text(kv),
               bytes_text(kv > UINT64_MAX - summary.tensor_bytes ? UINT64_MAX
                                                                 : kv + summary.tensor_bytes));
  }
}

void print_text(const ModelSummary& summary) {
  const TokenizerFacts& tokenizer = summary.tokenizer;
  fmt::print("\n");
  std::string kind = printable(tokenizer.kind, 40);
  if (!tokenizer.pre_tokenizer.empty()) kind += " / " + printable(tokenizer.pre_tokenizer, 40);
  print_line("Tokenizer", kind.empty()
                              ? "none"
                              : fmt::format("{}, {} tokens", kind, grouped(tokenizer.vocabulary)));
  for (const SpecialToken& token : tokenizer.special) {
    print_line(
        "  " + printable(token.role, 16),
        fmt::format("{}{}{}", token.id, token.text.empty() ? "" : "  ", printable(token.text, 40)));
  }
  print_line("Chat template",
             summary.chat_template
                 ? fmt::format("{} bytes: {}", grouped(summary.chat_template->size()),
                               printable(*summary.chat_template, 60))
                 : "none");
}

// How the model writes calls and thoughts, as its own template has it.
Result<dialog::ChatFormat> dialog_format_of(const WeightSource& source) {
  SKEIN_ASSIGN(const ChatTemplateSource chat, read_chat_template(source));
  return dialog::find_format(chat);
}

void print_dialog_format(const WeightSource& source) {
  const auto format = dialog_format_of(source);
  if (!format.ok()) {
    print_line("Tool calls", "none: " + printable(format.message(), 100));
    return;
  }
  const bool generic = format->calls_from == dialog::FormatSource::kGeneric;
  print_line("Tool calls",
             fmt::format("{} ({}{})", format->calls.name, source_name(format->calls_from),
                         generic ? "; --tool-format sets another" : ""));
  const bool thinks = format->reasoning_from != dialog::FormatSource::kGeneric;
  print_line("Reasoning", thinks ? fmt::format("{} ({})", printable(format->reasoning.name, 40),
                                               source_name(format->reasoning_from))
                                 : "none (--reasoning-format sets one)");
}

std::string_view sampling_words(SamplingSource source) {
  if (source == SamplingSource::kFiles) return "as the files say";
  return source == SamplingSource::kAuthors ? "as its authors say" : "the files say nothing";
}

// Prints the sampling of requests that say nothing; what is off is left out.
void print_sampling(const WeightSource& source) {
  const SamplingDefaults defaults = find_sampling_defaults(source, {});
  const SamplingParams& params = defaults.params;
  std::string text = fmt::format("temperature {}", params.temperature);
  if (params.top_k != 0) text += fmt::format(", top_k {}", params.top_k);
  if (params.top_p != 1) text += fmt::format(", top_p {}", params.top_p);
  if (params.min_p != 0) text += fmt::format(", min_p {}", params.min_p);
  if (params.typical_p != 1) text += fmt::format(", typical_p {}", params.typical_p);
  if (params.repetition_penalty != 1) {
    text += fmt::format(", repetition_penalty {}", params.repetition_penalty);
  }
  print_line("Sampling", fmt::format("{} ({})", text, sampling_words(defaults.source)));
}

// A float as the shortest number that is read as the same float.
OrderedJson number_json(float value) {
  return OrderedJson::parse(fmt::format("{}", value));
}

OrderedJson sampling_json(const WeightSource& source) {
  const SamplingDefaults defaults = find_sampling_defaults(source, {});
  const SamplingParams& params = defaults.params;
  return {{"temperature", number_json(params.temperature)},
          {"top_p", number_json(params.top_p)},
          {"min_p", number_json(params.min_p)},
          {"top_k", params.top_k},
          {"typical_p", number_json(params.typical_p)},
          {"repetition_penalty", number_json(params.repetition_penalty)},
          {"from", name_of(defaults.source)}};
}

// Prints which vectors the model makes of a text, as its files say.
void print_vectors(const WeightSource& source) {
  const VectorFacts facts = read_vectors(source);
  if (!facts.status.ok()) {
    print_line("Pooling", fmt::format("cannot be used: {} ({})",
                                      printable(facts.status.message(), 100), facts.from));
  } else {
    print_line("Pooling",
               facts.kind ? fmt::format("{} ({})", name_of(*facts.kind), printable(facts.from, 80))
                          : "none (--pooling sets one)");
  }
}

OrderedJson vectors_json(const WeightSource& source) {
  const VectorFacts facts = read_vectors(source);
  if (!facts.kind) return {};
  return {{"kind", name_of(*facts.kind)}, {"from", facts.from}};
}

OrderedJson dialog_format_json(const WeightSource& source) {
  const auto format = dialog_format_of(source);
  if (!format.ok()) return {};
  return {{"calls", format->calls.name},
          {"calls_from", source_name(format->calls_from)},
          {"reasoning", format->reasoning.name},
          {"reasoning_from", source_name(format->reasoning_from)}};
}

void print_tensors(const WeightSource& source) {
  fmt::print("\n{:<8} {:<24} {:>12}  {}\n", "Type", "Shape", "size", "Tensor");
  for (const NamedTensor& tensor : source.tensors()) {
    fmt::print("{:<8} {:<24} {:>12}  {}\n", info(tensor.view.type).name,
               tensor.view.shape.to_string(), bytes_text(tensor.view.bytes.size()),
               printable(tensor.name, 120));
  }
}

std::string_view kind_name(const WeightSource& source) {
  return source.kind() == SourceKind::kGguf ? "GGUF" : "Hugging Face folder";
}

// What no family takes is not spoken of as if it could be served.
bool writes_text(const WeightSource& source, const Status& loads) {
  return !Decoder::is_encoder(source) && loads.code() != Code::kUnimplemented;
}

void print_table(const WeightSource& source, const ModelSummary& summary) {
  print_line("Model", source.path());
  print_line("Kind", fmt::format("{}, {} file{}", kind_name(source), source.file_count(),
                                 source.file_count() == 1 ? "" : "s"));
  print_line("Architecture", printable(summary.architecture, 60));
  if (!summary.name.empty()) print_line("Name", printable(summary.name, 60));
  for (const ShapeFact& fact : summary.shape) print_line(fact.label, grouped(fact.value));
  print_line("Parameters", fmt::format("{} ({}), {:.2f} bits each, {}", grouped(summary.parameters),
                                       scaled(summary.parameters, 1000, {"", "K", "M", "G", "T"}),
                                       bits_per_parameter(summary.tensor_bytes, summary.parameters),
                                       bytes_text(summary.tensor_bytes)));
  print_quantization(summary);
  const Status loads = Decoder::check_source(source, 0);
  if (writes_text(source, loads)) print_memory(summary);
  print_text(summary);
  if (Decoder::is_encoder(source)) {
    print_line("Encoder", "makes vectors of whole texts, writes none, keeps no KV");
  } else if (writes_text(source, loads)) {
    print_dialog_format(source);
    print_sampling(source);
  }
  print_vectors(source);
  if (!loads.ok()) print_line("Loads", "no: " + printable(loads.message(), 300));
}

OrderedJson tokenizer_json(const TokenizerFacts& tokenizer) {
  OrderedJson special = OrderedJson::array();
  for (const SpecialToken& token : tokenizer.special) {
    special.push_back({{"role", token.role}, {"id", token.id}, {"text", token.text}});
  }
  return {{"kind", tokenizer.kind},
          {"pre_tokenizer", tokenizer.pre_tokenizer},
          {"vocabulary", tokenizer.vocabulary},
          {"special", std::move(special)}};
}

OrderedJson memory_json(const ModelSummary& summary) {
  OrderedJson memory = OrderedJson::array();
  if (!summary.kv_bytes_per_token) return memory;
  for (const uint64_t length : context_lengths(summary)) {
    memory.push_back({{"context", length},
                      {"kv_bytes", saturating_product(length, *summary.kv_bytes_per_token)}});
  }
  return memory;
}

void print_json(const WeightSource& source, const ModelSummary& summary, bool with_tensors) {
  OrderedJson out = {{"path", source.path()},
                     {"kind", source.kind() == SourceKind::kGguf ? "gguf" : "huggingface"},
                     {"files", source.file_count()},
                     {"architecture", summary.architecture},
                     {"name", summary.name}};
  for (const ShapeFact& fact : summary.shape) out["shape"][std::string(fact.key)] = fact.value;
  out["parameters"] = summary.parameters;
  out["tensor_bytes"] = summary.tensor_bytes;
  out["quantization"] = OrderedJson::array();
  for (const TypeShare& share : summary.types) {
    out["quantization"].push_back({{"type", share.type},
                                   {"tensors", share.tensors},
                                   {"parameters", share.parameters},
                                   {"bytes", share.bytes}});
  }
  const Status loads = Decoder::check_source(source, 0);
  const bool writes = writes_text(source, loads);
  out["loads"] = loads.ok();
  out["refused"] = loads.ok() ? OrderedJson() : OrderedJson(loads.message());
  out["encoder"] = Decoder::is_encoder(source);
  out["kv_bytes_per_token"] = summary.kv_bytes_per_token && writes
                                  ? OrderedJson(*summary.kv_bytes_per_token)
                                  : OrderedJson();
  out["memory"] = writes ? memory_json(summary) : OrderedJson::array();
  out["tokenizer"] = tokenizer_json(summary.tokenizer);
  out["chat_template"] =
      summary.chat_template ? OrderedJson(*summary.chat_template) : OrderedJson();
  out["dialog"] = writes ? dialog_format_json(source) : OrderedJson();
  out["sampling"] = writes ? sampling_json(source) : OrderedJson();
  out["pooling"] = vectors_json(source);
  if (with_tensors) {
    out["tensors"] = OrderedJson::array();
    for (const NamedTensor& tensor : source.tensors()) {
      out["tensors"].push_back({{"name", tensor.name},
                                {"type", info(tensor.view.type).name},
                                {"shape", tensor.view.shape.dims()},
                                {"bytes", tensor.view.bytes.size()}});
    }
  }
  // Names in a file need not be UTF-8; JSON must be.
  fmt::print("{}\n", out.dump(2, ' ', false, OrderedJson::error_handler_t::replace));
}

Status inspect(const InspectOptions& options) {
  SKEIN_ASSIGN(const std::string path, model_path(options.model));
  SKEIN_ASSIGN(const WeightSource source, open_model(path));
  auto summary = summarize(source);
  if (!summary.ok()) {
    return {summary.status().code(), fmt::format("{}: {}", path, summary.message())};
  }
  if (options.json) {
    print_json(source, *summary, options.tensors);
  } else {
    print_table(source, *summary);
    if (options.tensors) print_tensors(source);
  }
  return ok_status();
}

}  // namespace

void add_inspect(CLI::App& app, CommandResult& result) {
  auto options = std::make_shared<InspectOptions>();
  CLI::App* command = app.add_subcommand("inspect", "Show what is in a model");
  command
      ->add_option("model", options->model,
                   "GGUF file, Hugging Face folder, name in the model folder, or 'default'")
      ->required();
  command->add_flag("--json", options->json, "Print JSON");
  command->add_flag("--tensors", options->tensors, "List every tensor too");
  command->callback([options, &result] { result = inspect(*options); });
}

}  // namespace skein::apps
