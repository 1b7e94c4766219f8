#include "server/answer/recall.h"

#include <algorithm>
#include <utility>

#include "base/log.h"

namespace skein {
namespace {

// The text itself, what is read from it and the prompt that it becomes.
constexpr uint64_t kBytesPerByte = 6;
// Lists are parsed one after the other. A value may be a member with its name, in a list that has
// grown to twice its length.
constexpr uint64_t kBytesPerValue = 128;

// At least as many as a JSON text has.
uint64_t most_values(const std::string& text) {
  const auto begins_value = [](char c) { return c == ',' || c == '[' || c == '{'; };
  return 1 + static_cast<uint64_t>(std::count_if(text.begin(), text.end(), begins_value));
}

uint64_t memory_for(const std::vector<ConversationTurn>& turns) {
  uint64_t bytes = 0, values = 0;
  for (const ConversationTurn& turn : turns) {
    bytes += turn.input.size() + turn.output.size();
    values = std::max({values, most_values(turn.input), most_values(turn.output)});
  }
  return kBytesPerByte * bytes + kBytesPerValue * values;
}

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

// Hands on what the store says, with the memory for it.
Done<std::vector<ConversationTurn>> pay_for(ServerContext& context, const std::string& account,
                                            const std::string& field,
                                            std::function<void(api::Parsed<Recalled>)> done) {
  auto memory = std::make_shared<ByteBudget::Hold>(context.memory, account);
  return [memory = std::move(memory), limit = context.memory.account_limit_bytes(), field,
          done = std::move(done)](Result<std::vector<ConversationTurn>> turns) {
    if (!turns.ok()) return done(recall_error(turns.status(), field));
    const uint64_t bytes = memory_for(*turns);
    if (!memory->resize(bytes)) return done(no_memory_error(bytes, limit, field));
    done(Recalled{std::move(*turns), memory});
  };
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
  context.store.responses().conversation(id, scope,
                                         pay_for(context, account, field, std::move(done)));
}

void recall_each(ServerContext& context, std::vector<std::string> ids, const Scope& scope,
                 const std::string& account, std::function<void(api::Parsed<Recalled>)> done) {
  context.store.responses().turns(std::move(ids), scope,
                                  pay_for(context, account, "input", std::move(done)));
}

bool keeps_responses(const ServerContext& context) {
  return context.settings.store.response_limits.keep_any();
}

}  // namespace skein
