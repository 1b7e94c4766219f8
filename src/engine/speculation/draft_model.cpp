#include "engine/speculation/draft_model.h"

#include <algorithm>
#include <mutex>
#include <utility>

namespace skein {
namespace {

// What a row more costs a step of the large model, in 1/1000 of one; and the margin that a guess
// has to pay with.
constexpr uint64_t kRowCostMilli = 100;
constexpr uint64_t kMarginPercent = 125;
// After so many calls without guesses one is made, to see whether they have come to pay.
constexpr uint32_t kCallsToTryAgain = 64;

}  // namespace

DraftModel::Reader::~Reader() {
  if (free_ != nullptr) free_->insert(free_->end(), blocks_.begin(), blocks_.end());
}

// What followed the guesses shows which of them were right, computed by the large model or not.
// What the cache holds behind them is of another text.
void DraftModel::Reader::learn(std::span<const TokenId> text) {
  uint32_t right = 0;
  while (right < guesses_.size() && size_t{guessed_at_} + right < text.size()) {
    const bool came_true = guesses_[right] == text[guessed_at_ + right];
    come_true_ = came_true ? std::min(985U, come_true_ + (1000 - come_true_ + 15) / 16)
                           : std::max(10U, come_true_ - come_true_ / 16);
    if (!came_true) break;
    ++right;
  }
  guessed_at_ += right;
  computed_ = std::min(computed_, guessed_at_);
  guesses_.clear();
}

// As many as a step with them gives more tokens for its cost than one without.
uint32_t DraftModel::Reader::wanted(uint32_t cost_milli) {
  const uint64_t each = cost_milli + kRowCostMilli;
  uint64_t time = 1000;
  uint64_t tokens = 1000;
  uint64_t likely = 1000;
  uint32_t count = 0;
  while (count < kMostDrafts) {
    likely = likely * come_true_ / 1000;
    if (time * likely * 100 <= each * tokens * kMarginPercent) break;
    time += each;
    tokens += likely;
    ++count;
  }
  if (count == 0 && ++waited_ >= kCallsToTryAgain) count = 1;
  if (count > 0) waited_ = 0;
  return count;
}

Result<std::unique_ptr<DraftModel>> DraftModel::create(std::shared_ptr<LoadedModel> model,
                                                       uint32_t blocks, uint32_t cost_milli,
                                                       ComputePool& pool) {
  SKEIN_ASSIGN(auto cache, model->make_kv(blocks));
  return std::unique_ptr<DraftModel>(
      new DraftModel(std::move(model), std::move(cache), cost_milli, pool));
}

DraftModel::DraftModel(std::shared_ptr<LoadedModel> model, std::unique_ptr<KvCache> cache,
                       uint32_t cost_milli, ComputePool& pool)
    : model_(std::move(model)),
      cache_(std::move(cache)),
      cost_milli_(cost_milli),
      pool_(pool),
      free_(std::make_shared<std::vector<BlockId>>()) {
  for (uint32_t i = cache_->blocks(); i > 0; --i) free_->emplace_back(i - 1);
  for (size_t i = 0; i < pool_.threads(); ++i) scratches_.emplace_back(model_->backend().scan());
}

Status DraftModel::check_vocabulary(const LoadedModel& draft, const std::string& draft_name,
                                    const LoadedModel& target, const std::string& target_name) {
  if (draft.spec().encoder) {
    return invalid_argument("draft model {}: it is an encoder, which makes vectors alone",
                            draft_name);
  }
  if (draft.vocab() != target.vocab()) {
    return invalid_argument("draft model {}: its vocabulary has {} tokens, that of {} has {}",
                            draft_name, draft.vocab(), target_name, target.vocab());
  }
  if (draft.tokenizer() == nullptr || target.tokenizer() == nullptr) return {};
  const Tokenizer& a = draft.tokenizer()->tokenizer;
  const Tokenizer& b = target.tokenizer()->tokenizer;
  for (uint32_t i = 0; i < target.vocab(); ++i) {
    const auto id = static_cast<TokenId>(i);
    if (a.bytes(id) == b.bytes(id)) continue;
    return invalid_argument("draft model {}: its token {} is another than that of {}", draft_name,
                            i, target_name);
  }
  return {};
}

uint32_t DraftModel::cost_milli(const LoadedModel& draft, const LoadedModel& target) {
  const uint64_t large = std::max<uint64_t>(target.decoder().weight_bytes(), 1);
  return static_cast<uint32_t>(
      std::min<uint64_t>(draft.decoder().weight_bytes() * 1000 / large, 1'000'000));
}

void DraftModel::guess(std::span<const Wish> wishes) {
  choose(wishes);
  if (drafts_.empty()) return;
  read_texts();
  while (read_guesses()) {
  }
  for (const Draft& draft : drafts_) write(draft);
  drafts_.clear();
}

// Whose guesses are worth a pass: it is shared by all.
void DraftModel::choose(std::span<const Wish> wishes) {
  drafts_.clear();
  const auto share = static_cast<uint32_t>(cost_milli_ / std::max<size_t>(wishes.size(), 1));
  const DecoderLimits& limits = model_->decoder().limits();
  for (const Wish& wish : wishes) {
    Reader& reader = *wish.reader;
    reader.learn(wish.text);
    if (!wish.odds->empty() && wish.odds->front() >= reader.come_true_) continue;
    const uint32_t count = reader.wanted(share);
    const uint64_t tokens = wish.text.size() + count;
    if (count == 0 || drafts_.size() >= limits.logit_rows) continue;
    if (tokens > model_->decoder().max_context() || !grow(reader, tokens)) continue;
    Draft& draft = drafts_.emplace_back();
    draft.wish = &wish;
    draft.count = count;
    draft.ahead.reserve(wish.ahead.size() + count);  // the pool's tasks do not allocate
    draft.ahead.assign(wish.ahead.begin(), wish.ahead.end());
  }
}

bool DraftModel::grow(Reader& reader, uint64_t tokens) {
  const uint64_t wanted = blocks_for(tokens);
  if (wanted > reader.blocks_.size() + free_->size()) return false;
  reader.free_ = free_;
  reader.blocks_.reserve(wanted);
  while (reader.blocks_.size() < wanted) {
    reader.blocks_.push_back(free_->back());
    free_->pop_back();
  }
  return true;
}

// What each has of its text that was not computed yet, as far as a pass holds it.
void DraftModel::read_texts() {
  size_t room = model_->decoder().limits().rows;
  for (Draft& draft : drafts_) {
    const std::span<const TokenId> text = draft.wish->text;
    const size_t computed = draft.wish->reader->computed_;
    const std::span<const TokenId> rest = text.subspan(std::min(computed, text.size() - 1));
    const size_t count = std::min(rest.size(), room);
    draft.wish->reader->computed_ = static_cast<uint32_t>(text.size() - rest.size());
    draft.ended = count < rest.size();
    if (count == 0) continue;
    room -= count;
    add_rows(draft, rest.first(count), !draft.ended);
  }
  compute();
}

// One more token of each that goes on; false when there is none.
bool DraftModel::read_guesses() {
  for (Draft& draft : drafts_) {
    draft.logit = SIZE_MAX;
    const size_t made = draft.ahead.size() - draft.wish->ahead.size();
    if (draft.ended || made >= draft.count) continue;
    add_rows(draft, std::span(draft.ahead).last(1), true);
  }
  if (sequences_.empty()) return false;
  compute();
  return true;
}

void DraftModel::add_rows(Draft& draft, std::span<const TokenId> tokens, bool samples) {
  Reader& reader = *draft.wish->reader;
  Sequence sequence;
  sequence.first_row = static_cast<uint32_t>(tokens_.size());
  sequence.rows = static_cast<uint32_t>(tokens.size());
  sequence.start = reader.computed_;
  sequence.blocks = reader.blocks_;
  sequences_.push_back(sequence);
  tokens_.insert(tokens_.end(), tokens.begin(), tokens.end());
  reader.computed_ += sequence.rows;
  if (!samples) return;
  draft.logit = logit_rows_.size();
  logit_rows_.push_back(static_cast<uint32_t>(tokens_.size() - 1));
}

void DraftModel::compute() {
  const std::lock_guard turn(model_->compute_mutex());
  const Rows rows = model_->decoder().forward(
      {.tokens = tokens_, .sequences = sequences_, .logit_rows = logit_rows_}, *cache_);
  if (!logit_rows_.empty()) {
    const HostRows logits = model_->backend().read(rows);
    const size_t threads = scratches_.size();
    pool_.run(threads, [&](size_t thread) {
      for (size_t i = thread; i < drafts_.size(); i += threads) {
        if (drafts_[i].logit != SIZE_MAX) draw(drafts_[i], logits, scratches_[thread]);
      }
    });
  }
  tokens_.clear();
  sequences_.clear();
  logit_rows_.clear();
}

// What cannot be drawn, or ends the answer, is not guessed.
void DraftModel::draw(Draft& draft, const HostRows& logits, SamplerScratch& scratch) const {
  const size_t made = draft.ahead.size() - draft.wish->ahead.size();
  const auto position = static_cast<uint32_t>(draft.wish->text.size() + made);
  const Result<SampledToken> sampled = draft.wish->sampler->sample(
      logits.row(draft.logit).first(model_->vocab()), position, scratch, draft.ahead);
  draft.ended = !sampled.ok() || sampled->stop || sampled->last;
  if (sampled.ok() && !sampled->stop) draft.ahead.push_back(sampled->token);
}

void DraftModel::write(const Draft& draft) {
  const Wish& wish = *draft.wish;
  Reader& reader = *wish.reader;
  const std::span<const TokenId> made = std::span(draft.ahead).subspan(wish.ahead.size());
  reader.guessed_at_ = static_cast<uint32_t>(wish.text.size());
  reader.guesses_.assign(made.begin(), made.end());
  if (made.empty()) return;
  wish.drafts->assign(made.begin(), made.end());
  wish.odds->clear();
  uint32_t likely = 1000;
  for (size_t i = 0; i < made.size(); ++i) {
    likely = std::max(likely * reader.come_true_ / 1000, 1U);
    wish.odds->push_back(static_cast<uint16_t>(likely));
  }
}

}  // namespace skein
