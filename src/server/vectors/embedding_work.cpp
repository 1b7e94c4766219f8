// Embeddings: a vector of length 1 for each input.
#include <utility>

#include "base/log.h"
#include "generate/vectors.h"
#include "server/answer/prompts.h"
#include "server/json.h"
#include "server/vectors/vector_work.h"

namespace skein {
namespace {

constexpr uint64_t kEnvelopeBytes = 1024;  // of an answer without its items

class EmbeddingWork final : public VectorWork {
 public:
  explicit EmbeddingWork(api::EmbeddingRequest request) : request_(std::move(request)) {}

  std::string_view id_prefix() const override { return "embd-"; }
  const std::string& model() const override { return request_.model; }
  std::optional<TimeUs> timeout_us() const override { return request_.timeout_us; }

  api::Parsed<std::vector<VectorPrompt>> make_prompts(const ServerContext& context,
                                                      const ServedModel& served) override {
    if (auto none = find_no_vectors(served, false)) return std::move(*none);
    const uint32_t hidden = served.model().spec().hidden;
    if (request_.dimensions.value_or(1) > hidden) {
      return api::invalid_field("dimensions",
                                fmt::format("{} are asked for; this model's vectors have {}.",
                                            *request_.dimensions, hidden));
    }
    std::vector<VectorPrompt> prompts;
    prompts.reserve(request_.inputs.size());
    for (size_t i = 0; i < request_.inputs.size(); ++i) {
      auto ids = ids_of(context, served, i);
      if (!ids.ok()) return ids.error();
      if (auto error = check_item(served, ids->size(), item(i))) return std::move(*error);
      prompts.push_back({std::move(*ids)});
    }
    count_ = prompts.size();
    request_.inputs = {};
    return prompts;
  }

  uint64_t prompt_bytes() const override {
    constexpr uint64_t kAround = 8;  // what the tokenizer puts around a text
    uint64_t tokens = request_.inputs.size() * kAround;
    for (const auto& input : request_.inputs) {
      tokens += std::visit([](const auto& given) { return given.size(); }, input);
    }
    return tokens * sizeof(TokenId);
  }

  uint64_t answer_bytes(const ServedModel& served) const override {
    const uint64_t width = request_.dimensions.value_or(served.model().spec().hidden);
    return kEnvelopeBytes + count_ * api::embedding_bytes(width, request_.base64);
  }

  Result<std::string> write(const ServedModel& served, const std::string& /*id*/,
                            uint64_t prompt_tokens, std::vector<Vector> vectors) const override {
    std::string out;
    out.reserve(answer_bytes(served));
    out.append(R"({"object":"list","data":[)");
    for (size_t i = 0; i < vectors.size(); ++i) {
      SKEIN_ASSIGN(const Vector unit,
                   unit_vector(std::move(vectors[i]), request_.dimensions.value_or(0)));
      if (i > 0) out.push_back(',');
      api::append_embedding(out, i, unit, request_.base64);
    }
    out.push_back(']');
    json::append_member(out, "model", served.id());
    api::append_prompt_usage(out, prompt_tokens);
    return out.append("}");
  }

 private:
  static std::string item(size_t i) { return fmt::format("input[{}]", i); }

  api::Parsed<std::vector<TokenId>> ids_of(const ServerContext& context, const ServedModel& served,
                                           size_t i) {
    if (auto* given = std::get_if<std::vector<TokenId>>(&request_.inputs[i])) {
      for (const TokenId id : *given) {
        if (id >= 0 && static_cast<uint32_t>(id) < served.vocab()) continue;
        return api::invalid_field(
            item(i), fmt::format("The vocabulary has {} tokens; {} is not one of them.",
                                 served.vocab(), id));
      }
      return std::move(*given);
    }
    if (auto missing = find_missing(served, true, false)) return std::move(*missing);
    auto ids = prompts_of(context, served).encode_text(std::get<std::string>(request_.inputs[i]));
    if (!ids.ok()) return item_error(ids.status(), item(i));
    if (ids->empty()) return api::invalid_field(item(i), "It has no tokens.");
    return std::move(*ids);
  }

  api::EmbeddingRequest request_;
  size_t count_ = 0;
};

}  // namespace

std::unique_ptr<VectorWork> make_work(api::EmbeddingRequest request) {
  return std::make_unique<EmbeddingWork>(std::move(request));
}

std::optional<api::Error> find_no_vectors(const ServedModel& served, bool ranks) {
  const VectorFacts& facts = served.model().vectors();
  if (facts.kind && (*facts.kind == VectorKind::kRank) == ranks) return std::nullopt;
  if (!facts.status.ok()) {
    log_warning("model {}: {}: {}", served.id(), facts.from, facts.status.message());
  }
  const std::string_view what = ranks ? "Ranking with this model" : "Embedding with this model";
  if (facts.kind || !facts.status.ok()) return api::not_supported(what);
  return api::not_supported(
      fmt::format("{}, whose files name no pooling (skein serve --pooling names one),", what));
}

api::Error item_error(const Status& status, std::string item) {
  api::Error error = api::from_status(status);
  if (status.code() == Code::kOutOfRange) error.param = std::move(item);
  return error;
}

std::optional<api::Error> check_item(const ServedModel& served, uint64_t tokens, std::string item) {
  const uint64_t limit = served.max_request_tokens();
  if (tokens <= limit) return std::nullopt;
  return api::Error{
      .status = 400,
      .message = fmt::format("{} has {} tokens; the limit is {}.", item, tokens, limit),
      .param = item,
      .code = "context_length_exceeded"};
}

}  // namespace skein
