#include "server/answer/recall.h"

#include <utility>

#include "base/log.h"

namespace skein {
namespace {

// JSON, what is read from it and the prompt that it becomes, beside the text itself.
constexpr uint64_t kBytesPerByte = 6;

// Why there is nothing to go on from. Another key's response is told as one that does not exist.
api::Error recall_error(const Status& status, const std::string& field) {
  if (status.code() == Code::kNotFound && !field.empty()) {
    return {.status = 404,
            .message = "There is no response with this id.",
            .param = field,
            .code = "previous_response_not_found"};
  }
  if (status.code() == Code::kOutOfRange) return api::invalid_field(field, status.message());
  api::Error error = api::storage_failed(status);
  if (error.status >= 500) log_error("a conversation cannot be read: {}", status.message());
  return error;
}

api::Error no_memory_error(uint64_t bytes, uint64_t limit, const std::string& field) {
  if (bytes <= limit) return api::overloaded(1);
  return api::invalid_field(
      field, fmt::format("The conversation takes {} bytes of memory, and a key may hold {}.", bytes,
                         limit));
}

}  // namespace

std::vector<std::string> Recalled::lists() && {
  std::vector<std::string> lists;
  for (ConversationTurn& turn : turns) {
    lists.push_back(std::move(turn.input));
    lists.push_back(std::move(turn.output));
  }
  return lists;
}

void recall(ServerContext& context, const std::string& id, const Scope& scope,
            const std::string& account, const std::string& field,
            std::function<void(api::Parsed<Recalled>)> done) {
  auto memory = std::make_shared<ByteBudget::Hold>(context.memory, account);
  context.store.responses().conversation(
      id, scope,
      [memory = std::move(memory), limit = context.memory.account_limit_bytes(), field,
       done = std::move(done)](Result<std::vector<ConversationTurn>> turns) {
        if (!turns.ok()) return done(recall_error(turns.status(), field));
        uint64_t bytes = 0;
        for (const ConversationTurn& turn : *turns) {
          bytes += turn.input.size() + turn.output.size();
        }
        if (!memory->resize(kBytesPerByte * bytes)) {
          return done(no_memory_error(kBytesPerByte * bytes, limit, field));
        }
        done(Recalled{std::move(*turns), memory});
      });
}

bool keeps_responses(const ServerContext& context) {
  return context.settings.store.response_limits.keep_any();
}

}  // namespace skein
