#include "server/grpc/piece_writer.h"

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <optional>
#include <utility>

#include "base/check.h"
#include "server/grpc/vllm.pb.h"
#include "text/text_assembler.h"

namespace skein::rpc {
namespace {

using ::vllm::FinishInfo;
using ::vllm::GenerateResponse;
using ::vllm::SequenceOutput;

class PieceWriter final : public api::AnswerWriter {
 public:
  explicit PieceWriter(const api::AnswerStart& start)
      : stream_(start.wanted.stream),
        pieces_(start.wanted.pieces),
        with_ids_(start.wanted.return_token_ids),
        with_logprobs_(start.wanted.sampling.logprobs) {
    if (pieces_.text) {
      auto text = TextAssembler::create(
          start.tokenizer,
          {.skip_special = start.wanted.skip_special_tokens, .continuation = start.wanted.goes_on},
          {});
      if (text.ok()) text_.emplace(std::move(*text));
    }
    auto& prompt = *piece_.mutable_prompt_info();
    prompt.set_num_prompt_tokens(static_cast<uint32_t>(start.prompt_ids.size()));
    if (!pieces_.prompt_ids) return;
    for (const TokenId id : start.prompt_ids) prompt.add_token_ids(static_cast<uint32_t>(id));
  }

  void write(std::string& out, uint32_t /*choice*/, const AnswerContent& part,
             const api::Figures& /*now*/) override {
    SequenceOutput& piece = *piece_.mutable_outputs();
    if (pieces_.text) piece.mutable_text()->append(part.text);
    shown_ += part.text.size();
    for (const TokenId id : part.tokens) add_token(piece, id);
    if (with_logprobs_ && !part.tokens.empty()) add_logprobs(piece, part);
    if (stream_ && is_settled(piece)) send(out);
  }
  // A text has neither thoughts nor calls, nor does anybody ask how far its prompt is.
  void progress(std::string&, uint64_t, uint64_t) override {}
  void write(std::string&, uint32_t, const AnswerReasoning&, const api::Figures&) override {}
  void write(std::string&, uint32_t, const AnswerCallBegin&, const api::Figures&) override {}
  void write(std::string&, uint32_t, const AnswerArguments&, const api::Figures&) override {}
  void write(std::string&, uint32_t, const AnswerCallEnd&, const api::Figures&) override {}

  void finish(std::string& out, uint32_t /*choice*/, const AnswerEnd& end,
              const api::Figures& /*now*/) override {
    FinishInfo& info = finish_with(end.how.reason == FinishReason::kLength ? FinishInfo::LENGTH
                                                                           : FinishInfo::STOP);
    if (!end.stop.empty()) {
      info.set_stop_string(std::string(end.stop));
      if (pieces_.stop_text && pieces_.text) {
        piece_.mutable_outputs()->mutable_text()->append(end.stop);
      }
    }
    if (stream_) send(out);
  }
  void end(std::string& out, const api::Figures& /*all*/) override {
    if (!stream_) out = piece_.SerializeAsString();
  }

  // Who called it off is told how far it had come.
  std::string failure(const api::Error& error) override {
    if (error.status != 499) return {};
    finish_with(FinishInfo::ABORTED);
    std::string out;
    send(out);
    return out;
  }

  uint64_t held_bytes() const override { return held_; }

 private:
  void add_token(SequenceOutput& piece, TokenId id) {
    piece.set_num_tokens(piece.num_tokens() + 1);
    ++tokens_;
    held_ += kTokenBytes;
    if (with_ids_) piece.add_token_ids(static_cast<uint32_t>(id));
    if (!text_) return;
    std::string text;
    if (text_->push(id, text).ok()) whole_ += text.size();
  }

  // For each token an entry of itself, then as many of the likeliest ones.
  void add_logprobs(SequenceOutput& piece, const AnswerContent& part) {
    const size_t stride = part.logprobs.size() / part.tokens.size();
    if (stride == 0) return;
    for (size_t i = 0; i < part.tokens.size(); ++i) {
      const auto entries = part.logprobs.subspan(i * stride, stride);
      const auto likeliest = entries.subspan(1);
      piece.add_logprobs(entries[0].logprob);
      // Beyond the likeliest nobody has counted.
      const auto found = std::find_if(likeliest.begin(), likeliest.end(), [&](const auto& one) {
        return one.token == entries[0].token;
      });
      piece.add_ranks(static_cast<uint32_t>(found - likeliest.begin()) + 1);
      auto& candidates = *piece.add_candidate_tokens();
      for (size_t rank = 0; rank < likeliest.size(); ++rank) {
        auto& one = *candidates.add_tokens();
        one.set_id(static_cast<uint32_t>(likeliest[rank].token));
        one.set_logprob(likeliest[rank].logprob);
        one.set_rank(static_cast<uint32_t>(rank) + 1);
      }
      held_ += stride * kEntryBytes;
    }
  }

  bool is_settled(const SequenceOutput& piece) const {
    if (!text_) return piece.num_tokens() > 0;
    return !piece.text().empty() && shown_ == whole_ && text_->is_between_characters();
  }

  FinishInfo& finish_with(FinishInfo::FinishReason reason) {
    FinishInfo& info = *piece_.mutable_outputs()->mutable_finish_info();
    info.set_num_output_tokens(tokens_);
    info.set_finish_reason(reason);
    return info;
  }

  void send(std::string& out) {
    append_piece(out, piece_.SerializeAsString());
    piece_.Clear();
    held_ = 0;
  }

  static constexpr uint64_t kTokenBytes = 16;  // of a message, with its text
  static constexpr uint64_t kEntryBytes = 48;

  const bool stream_;
  const api::AnswerOptions::Pieces pieces_;
  const bool with_ids_;
  const bool with_logprobs_;
  // The text of all tokens so far, whether or not it is shown yet; none where no text is wanted.
  std::optional<TextAssembler> text_;
  uint64_t whole_ = 0;  // its bytes
  uint64_t shown_ = 0;
  uint32_t tokens_ = 0;
  uint64_t held_ = 0;
  GenerateResponse piece_;
};

}  // namespace

const api::AnswerKind kGenerateAnswer{
    .id_prefix = "gen-",
    .prompt_field = "prompt",
    .keepalive = "",
    .error_frame = [](const api::Error&) { return std::string(); },
    .make_writer = [](const api::AnswerStart& start) -> std::unique_ptr<api::AnswerWriter> {
      return std::make_unique<PieceWriter>(start);
    }};

void append_piece(std::string& out, std::string_view message) {
  const auto size = static_cast<uint32_t>(message.size());
  char length[sizeof(size)];
  std::memcpy(length, &size, sizeof(size));
  out.append(length, sizeof(size)).append(message);
}

std::string_view take_piece(std::string_view& pieces) {
  uint32_t size = 0;
  SKEIN_CHECK(pieces.size() >= sizeof(size), "{} bytes are no piece", pieces.size());
  std::memcpy(&size, pieces.data(), sizeof(size));
  pieces.remove_prefix(sizeof(size));
  SKEIN_CHECK(pieces.size() >= size, "a piece of {} bytes in {}", size, pieces.size());
  const std::string_view message = pieces.substr(0, size);
  pieces.remove_prefix(size);
  return message;
}

}  // namespace skein::rpc
