#include "server/api/vector_requests.h"

#include <algorithm>
#include <bit>
#include <charconv>
#include <utility>

#include "server/api/fields.h"

namespace skein::api {
namespace {

constexpr size_t kNumberBytes = 16;  // of the shortest text of a float32, and a comma
constexpr size_t kItemBytes = 80;    // of an item without its numbers

void append_float(std::string& out, float value) {
  char text[kNumberBytes * 2];
  const auto written = std::to_chars(text, text + sizeof(text), value);
  out.append(text, written.ptr);
}

void append_base64(std::string& out, std::string_view bytes) {
  constexpr std::string_view kDigits =
      "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
  for (size_t i = 0; i < bytes.size(); i += 3) {
    const size_t have = std::min<size_t>(3, bytes.size() - i);
    uint32_t bits = 0;
    for (size_t j = 0; j < 3; ++j) {
      bits = bits << 8 | (j < have ? static_cast<uint8_t>(bytes[i + j]) : 0U);
    }
    for (size_t j = 0; j < 4; ++j) {
      out.push_back(j <= have ? kDigits[bits >> (18 - 6 * j) & 63] : '=');
    }
  }
}

// Little-endian, whatever the machine is.
std::string bytes_of_floats(std::span<const float> values) {
  std::string bytes;
  bytes.reserve(values.size() * sizeof(float));
  for (const float value : values) {
    const auto bits = std::bit_cast<uint32_t>(value);
    for (int shift = 0; shift < 32; shift += 8) {
      bytes.push_back(static_cast<char>(bits >> shift & 0xff));
    }
  }
  return bytes;
}

std::string read_document(const json::Value& item, const std::string& path, Problem& problem) {
  if (item.is_string()) return item.get<std::string>();
  if (item.is_object()) return Fields(item, path, problem).required_string("text");
  problem = invalid_field(path, "A string or an object with a text is expected here.");
  return {};
}

}  // namespace

Parsed<EmbeddingRequest> parse_embedding_request(std::string_view body) {
  auto parsed = parse_body(body);
  if (!parsed.ok()) return parsed.error();
  return read_embedding_request(*parsed);
}

Parsed<EmbeddingRequest> read_embedding_request(const json::Value& body) {
  Problem problem;
  const Fields fields(body, "", problem);
  EmbeddingRequest request;
  request.model = fields.string("model", kMaxNameBytes).value_or("");
  request.inputs = read_prompts(fields, "input", kMaxInputs);
  for (size_t i = 0; i < request.inputs.size() && !problem; ++i) {
    const auto* text = std::get_if<std::string>(&request.inputs[i]);
    if (text == nullptr || !text->empty()) continue;
    problem = invalid_field(fmt::format("input[{}]", i), "It is empty; there is nothing to embed.");
  }
  request.base64 = fields.choice("encoding_format", {"float", "base64"}).value_or(0) == 1;
  if (const auto dimensions = fields.integer("dimensions", 1, kMaxDimensions)) {
    request.dimensions = static_cast<uint32_t>(*dimensions);
  }
  request.timeout_us = read_timeout(fields);
  if (problem) return *problem;
  return request;
}

Parsed<RerankRequest> parse_rerank_request(std::string_view body) {
  auto parsed = parse_body(body);
  if (!parsed.ok()) return parsed.error();
  Problem problem;
  const Fields fields(*parsed, "", problem);
  RerankRequest request;
  request.model = fields.string("model", kMaxNameBytes).value_or("");
  request.instruction = fields.string("instruction").value_or("");
  request.query = fields.required_string("query");
  if (request.query.empty()) fields.fail("query", "It is empty; there is nothing to look for.");
  if (!fields.has("documents")) fields.missing("documents");
  fields.for_each("documents", kMaxDocuments,
                  [&](const json::Value& item, const std::string& path) {
                    request.documents.push_back(read_document(item, path, problem));
                  });
  if (request.documents.empty()) fields.fail("documents", "At least one is needed here.");
  const size_t count = request.documents.size();
  const auto top = fields.integer("top_n", 1, INT32_MAX);
  request.top_n = top ? std::min(count, static_cast<size_t>(*top)) : count;
  request.return_documents = fields.boolean("return_documents").value_or(false);
  request.timeout_us = read_timeout(fields);
  if (problem) return *problem;
  return request;
}

void append_embedding(std::string& out, size_t index, std::span<const float> vector, bool base64) {
  out.append(R"({"object":"embedding","index":)");
  json::append_int(out, static_cast<int64_t>(index));
  out.append(R"(,"embedding":)");
  if (base64) {
    out.push_back('"');
    append_base64(out, bytes_of_floats(vector));
    out.push_back('"');
  } else {
    json::append_list(out, vector, [&](float value) { append_float(out, value); });
  }
  out.push_back('}');
}

uint64_t embedding_bytes(uint64_t dimensions, bool base64) {
  const uint64_t numbers =
      base64 ? (dimensions * sizeof(float) + 2) / 3 * 4 : dimensions * kNumberBytes;
  return kItemBytes + numbers;
}

void append_prompt_usage(std::string& out, uint64_t prompt_tokens) {
  json::append_name(out, "usage");
  out.push_back('{');
  json::append_member(out, "prompt_tokens", prompt_tokens);
  json::append_member(out, "total_tokens", prompt_tokens);
  out.push_back('}');
}

std::string rerank_answer(std::string_view id, std::string_view model, const RerankRequest& request,
                          std::span<const RankedDocument> results, uint64_t prompt_tokens) {
  std::string out = "{";
  json::append_member(out, "id", id);
  json::append_member(out, "model", model);
  json::append_name(out, "results");
  json::append_list(out, results, [&](const RankedDocument& result) {
    out.push_back('{');
    json::append_member(out, "index", result.index);
    json::append_member(out, "relevance_score", result.score);
    if (request.return_documents) {
      out.append(R"(,"document":{"text":)");
      json::append_string(out, request.documents[result.index]);
      out.push_back('}');
    }
    out.push_back('}');
  });
  append_prompt_usage(out, prompt_tokens);
  return out.append("}");
}

}  // namespace skein::api
