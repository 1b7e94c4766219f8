// Rerank: documents in the order of what a model says of them, each asked about alone.
#include <algorithm>
#include <utility>

#include "generate/vectors.h"
#include "server/answer/prompts.h"
#include "server/vectors/vector_work.h"

namespace skein {
namespace {

constexpr uint64_t kResultBytes = 128;    // of a result without its document
constexpr uint64_t kQuestionBytes = 512;  // around query and document

class RerankWork final : public VectorWork {
 public:
  explicit RerankWork(api::RerankRequest request) : request_(std::move(request)) {}

  std::string_view id_prefix() const override { return "rerank-"; }
  const std::string& model() const override { return request_.model; }
  std::optional<TimeUs> timeout_us() const override { return request_.timeout_us; }

  api::Parsed<std::vector<VectorPrompt>> make_prompts(const ServerContext& context,
                                                      const ServedModel& served) override {
    if (auto none = find_no_vectors(served, true)) return std::move(*none);
    if (served.model().vectors().of_encoder && !request_.instruction.empty()) {
      return api::invalid_field("instruction", "This model compares two texts and takes none.");
    }
    const PromptBuilder builder = prompts_of(context, served);
    std::vector<VectorPrompt> prompts;
    prompts.reserve(request_.documents.size());
    for (size_t i = 0; i < request_.documents.size(); ++i) {
      const std::string item = fmt::format("documents[{}]", i);
      auto prompt = prompt_of(builder, served, request_.documents[i]);
      if (!prompt.ok()) return item_error(prompt.status(), item);
      if (auto error = check_item(served, prompt->ids.size(), item)) return std::move(*error);
      prompts.push_back(std::move(*prompt));
    }
    if (!request_.return_documents) request_.documents = {};
    return prompts;
  }

  uint64_t prompt_bytes() const override {
    const uint64_t shared = request_.query.size() + request_.instruction.size() + kQuestionBytes;
    uint64_t bytes = 0;
    for (const std::string& document : request_.documents) bytes += shared + document.size();
    return bytes * sizeof(TokenId);
  }

  uint64_t answer_bytes(const ServedModel&) const override {
    uint64_t bytes = kResultBytes * (request_.top_n + 8);
    // A control character is written as six bytes.
    for (const std::string& document : request_.documents) bytes += document.size() * 6;
    return bytes;
  }

  Result<std::string> write(const ServedModel& served, const std::string& id,
                            uint64_t prompt_tokens, std::vector<Vector> vectors) const override {
    const RankHead& head = *served.model().rank_head();
    std::vector<api::RankedDocument> ranked;
    ranked.reserve(vectors.size());
    for (size_t i = 0; i < vectors.size(); ++i) ranked.push_back({i, head.score(vectors[i])});
    std::stable_sort(ranked.begin(), ranked.end(),
                     [](const auto& a, const auto& b) { return a.score > b.score; });
    ranked.resize(std::min(ranked.size(), request_.top_n));
    return api::rerank_answer(id, served.id(), request_, ranked, prompt_tokens);
  }

 private:
  // The prompt that shows a document to the model.
  Result<VectorPrompt> prompt_of(const PromptBuilder& builder, const ServedModel& served,
                                 const std::string& document) const {
    const Tokenizer& tokenizer = served.model().tokenizer()->tokenizer;
    if (served.model().vectors().of_encoder) {
      SKEIN_ASSIGN(PairTokens pair, rank_pair(builder, tokenizer, request_.query, document));
      return VectorPrompt{std::move(pair.ids), pair.second_from};
    }
    RankQuestion question;
    if (!request_.instruction.empty()) question.instruction = request_.instruction;
    question.query = request_.query;
    question.document = document;
    SKEIN_ASSIGN(std::vector<TokenId> ids, rank_prompt(builder, tokenizer, question));
    return VectorPrompt{std::move(ids)};
  }

  api::RerankRequest request_;
};

}  // namespace

std::unique_ptr<VectorWork> make_work(api::RerankRequest request) {
  return std::make_unique<RerankWork>(std::move(request));
}

}  // namespace skein
