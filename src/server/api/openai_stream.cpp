#include "server/api/openai_stream.h"

#include "server/json/append.h"

namespace skein::api {

OpenAiStream::OpenAiStream(Kind kind, const Identity& identity, StreamExtras extras)
    : kind_(kind), extras_(extras) {
  head_ = "data: {\"id\":";
  json::append_string(head_, identity.id);
  head_.append(kind == Kind::kChat ? ",\"object\":\"chat.completion.chunk\",\"created\":"
                                   : ",\"object\":\"text_completion\",\"created\":");
  json::append_int(head_, identity.created);
  head_.append(",\"model\":");
  json::append_string(head_, identity.model);
  head_.append(",");
}

void OpenAiStream::open_choice(std::string& out, uint32_t index) const {
  out.append(head_).append("\"choices\":[{\"index\":");
  json::append_int(out, index);
}

void OpenAiStream::close(std::string& out, const Usage* usage) const {
  if (extras_.continuous_usage && usage != nullptr) {
    out.append(",\"usage\":");
    append_usage(out, *usage);
  } else if (extras_.include_usage) {
    out.append(",\"usage\":null");
  }
  out.append("}\n\n");
}

void OpenAiStream::begin(std::string& out, uint32_t index) const {
  open_choice(out, index);
  out.append(
      ",\"delta\":{\"role\":\"assistant\",\"content\":\"\"},\"logprobs\":null,"
      "\"finish_reason\":null}]");
  close(out, nullptr);
}

void OpenAiStream::text(std::string& out, const Delta& delta) const {
  const bool chat = kind_ == Kind::kChat;
  open_choice(out, delta.index);
  out.append(chat ? ",\"delta\":{\"content\":" : ",\"text\":");
  json::append_string(out, delta.text);
  out.append(chat ? "},\"logprobs\":" : ",\"logprobs\":");
  if (delta.logprobs == nullptr) {
    out.append("null");
  } else if (chat) {
    append_chat_logprobs(out, *delta.logprobs);
  } else {
    append_completion_logprobs(out, *delta.logprobs);
  }
  out.append(",\"finish_reason\":null");
  if (extras_.token_ids) {
    out.append(",\"token_ids\":");
    append_token_ids(out, delta.token_ids);
  }
  out.append("}]");
  if (delta.timings != nullptr) {
    out.append(",\"timings\":");
    append_timings(out, *delta.timings);
  }
  close(out, delta.usage);
}

void OpenAiStream::finish(std::string& out, uint32_t index, FinishReason reason,
                          const Usage* usage) const {
  open_choice(out, index);
  out.append(kind_ == Kind::kChat ? ",\"delta\":{}" : ",\"text\":\"\"");
  out.append(",\"logprobs\":null,\"finish_reason\":\"")
      .append(openai_finish(reason))
      .append("\"}]");
  close(out, usage);
}

void OpenAiStream::usage(std::string& out, const Usage& usage, const Timings* timings) const {
  out.append(head_).append("\"choices\":[],\"usage\":");
  append_usage(out, usage);
  if (timings != nullptr) {
    out.append(",\"timings\":");
    append_timings(out, *timings);
  }
  out.append("}\n\n");
}

void OpenAiStream::progress(std::string& out, uint64_t done_tokens, uint64_t all_tokens) const {
  out.append(head_).append("\"choices\":[],\"prompt_progress\":{\"total\":");
  json::append_int(out, static_cast<int64_t>(all_tokens));
  out.append(",\"processed\":");
  json::append_int(out, static_cast<int64_t>(done_tokens));
  out.append("}");
  close(out, nullptr);
}

void OpenAiStream::done(std::string& out) {
  out.append("data: [DONE]\n\n");
}

void OpenAiStream::error(std::string& out, const Error& error) {
  out.append("data: ").append(error_body(Dialect::kOpenAi, error)).append("\n\n");
}

}  // namespace skein::api
