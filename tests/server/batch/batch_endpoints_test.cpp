// /v1/batches and what runs them, /v1/requests.
#include <gtest/gtest.h>
#include <set>

#include "server/live_server.h"

namespace skein::testing {
namespace {

constexpr const char* kChat = "/v1/chat/completions";

std::string line_of(const std::string& custom_id, const Json& body,
                    const std::string& url = kChat) {
  return Json({{"custom_id", custom_id}, {"method", "POST"}, {"url", url}, {"body", body}}).dump() +
         "\n";
}

Json chat_body(const std::string& text, int max_tokens, Json more = Json::object()) {
  more["messages"] = {{{"role", "user"}, {"content", text}}};
  more["max_tokens"] = max_tokens;
  more["seed"] = 7;
  more["ignore_eos"] = true;
  return more;
}

std::string chat_lines(int count, int max_tokens) {
  std::string text;
  for (int i = 0; i < count; ++i) {
    text += line_of("c" + std::to_string(i), chat_body("Line " + std::to_string(i), max_tokens));
  }
  return text;
}

HttpAnswer create(LiveServer& live, const std::string& input, std::string_view key = {},
                  const std::string& endpoint = kChat) {
  const HttpAnswer file = live.upload(input, key);
  EXPECT_EQ(file.status, 200) << file.text;
  return live.post(
      "/v1/batches",
      {{"input_file_id", file.json["id"]}, {"endpoint", endpoint}, {"completion_window", "24h"}},
      key);
}

// The lines of a JSONL file, by custom_id.
std::map<std::string, Json> lines_of(LiveServer& live, const Json& file,
                                     std::string_view key = {}) {
  std::map<std::string, Json> lines;
  if (file.is_null()) return lines;
  const std::string text = live.get("/v1/files/" + file.get<std::string>() + "/content", key).text;
  size_t at = 0;
  while (at < text.size()) {
    const size_t end = text.find('\n', at);
    const Json line = Json::parse(text.substr(at, end - at), nullptr, false);
    EXPECT_FALSE(line.is_discarded()) << text.substr(at, end - at);
    EXPECT_TRUE(
        lines
            .emplace(line["custom_id"].is_string() ? line["custom_id"].get<std::string>() : "",
                     line)
            .second)
        << "two results: " << line.dump();
    at = end + 1;
  }
  return lines;
}

TEST(BatchEndpoints, EveryLineGetsItsAnswer) {
  LiveServer live;
  live.start();
  const HttpAnswer made = create(live, chat_lines(12, 5));
  ASSERT_EQ(made.status, 200) << made.text;
  EXPECT_EQ(made.json["object"], "batch");
  EXPECT_EQ(made.json["completion_window"], "24h");
  EXPECT_EQ(made.json["expires_at"].get<int64_t>(), made.json["created_at"].get<int64_t>() + 86400);
  EXPECT_EQ(made.json["endpoint"], kChat);
  EXPECT_TRUE(made.json["metadata"].is_null());
  const Json batch = live.wait_for_batch(made.json["id"]);
  EXPECT_EQ(batch["status"], "completed");
  EXPECT_EQ(batch["request_counts"], Json({{"total", 12}, {"completed", 12}, {"failed", 0}}));
  EXPECT_TRUE(batch["error_file_id"].is_null());
  EXPECT_TRUE(batch["completed_at"].is_number());
  EXPECT_TRUE(batch["cancelled_at"].is_null());
  const auto lines = lines_of(live, batch["output_file_id"]);
  ASSERT_EQ(lines.size(), 12U);
  // What a line answers is what the same request answers by itself.
  const HttpAnswer alone = live.post(kChat, chat_body("Line 3", 5));
  const Json& line = lines.at("c3")["response"];
  EXPECT_EQ(line["status_code"], 200);
  EXPECT_EQ(line["body"]["choices"], alone.json["choices"]) << alone.text;
  EXPECT_EQ(line["body"]["usage"]["completion_tokens"], 5);
  EXPECT_EQ(line["request_id"], line["body"]["id"]);
  EXPECT_TRUE(lines.at("c3")["error"].is_null());
}

// A line has no headers of its own: what they would say stands beside its body.
TEST(BatchEndpoints, WhatIsNotEnforcedIsNamedInItsRow) {
  LiveServer live;
  live.start();
  const Json schema = {{"type", "array"}, {"contains", {{"const", 1}}}, {"maxItems", 1}};
  const std::string input = line_of("bound", chat_body("x", 3, {{"json_schema", schema}})) +
                            line_of("free", chat_body("x", 3));
  const Json batch = live.wait_for_batch(create(live, input).json["id"]);
  const auto lines = lines_of(live, batch["output_file_id"]);
  ASSERT_EQ(lines.size(), 2U) << batch.dump();
  EXPECT_EQ(lines.at("bound")["response"]["headers"], Json({{"x-skein-relaxed", "/contains"}}));
  EXPECT_EQ(lines.at("bound")["response"]["body"]["object"], "chat.completion");
  EXPECT_FALSE(lines.at("free")["response"].contains("headers"));
}

TEST(BatchEndpoints, ABadLineFailsAlone) {
  LiveServer live;
  live.start();
  std::string input = chat_lines(2, 3);
  input += line_of("range", chat_body("x", 3, {{"temperature", 99}}));
  input += line_of("stream", chat_body("x", 3, {{"stream", true}}));
  input += line_of("model", chat_body("x", 3, {{"model", "nobody"}}));
  input += line_of("long", chat_body("x", 5000));
  input += "{ no json\n";
  const Json batch = live.wait_for_batch(create(live, input).json["id"]);
  EXPECT_EQ(batch["status"], "completed") << batch.dump();
  EXPECT_EQ(batch["request_counts"], Json({{"total", 7}, {"completed", 2}, {"failed", 5}}));
  EXPECT_EQ(lines_of(live, batch["output_file_id"]).size(), 2U);
  auto errors = lines_of(live, batch["error_file_id"]);
  ASSERT_EQ(errors.size(), 5U);
  EXPECT_EQ(errors["range"]["response"]["status_code"], 400);
  EXPECT_EQ(errors["range"]["response"]["body"]["error"]["param"], "temperature");
  EXPECT_EQ(errors["stream"]["response"]["body"]["error"]["param"], "body.stream");
  EXPECT_EQ(errors["model"]["response"]["status_code"], 404);
  EXPECT_EQ(errors["long"]["response"]["body"]["error"]["code"], "context_length_exceeded");
}

TEST(BatchEndpoints, CompletionsToo) {
  LiveServer live;
  live.start();
  const std::string url = "/v1/completions";
  const std::string input = line_of("p", {{"prompt", "ab"}, {"max_tokens", 4}, {"seed", 1}}, url);
  const Json batch = live.wait_for_batch(create(live, input, "", url).json["id"]);
  const Json line = lines_of(live, batch["output_file_id"]).at("p");
  EXPECT_EQ(line["response"]["body"]["object"], "text_completion") << batch.dump();
}

TEST(BatchEndpoints, ResponsesToo) {
  LiveServer live;
  live.start();
  const std::string url = "/v1/responses";
  const Json body = {{"input", "ab"}, {"max_output_tokens", 4}, {"seed", 1}};
  const std::string input =
      line_of("r", body, url) + line_of("bad", {{"input", "x"}, {"background", true}}, url);
  const Json batch = live.wait_for_batch(create(live, input, "", url).json["id"]);
  const Json line = lines_of(live, batch["output_file_id"]).at("r")["response"];
  EXPECT_EQ(line["body"]["object"], "response") << batch.dump();
  EXPECT_EQ(line["request_id"], line["body"]["id"]);
  const Json alone = live.post(url, body).json;
  EXPECT_EQ(line["body"]["output"][0]["content"], alone["output"][0]["content"]);
  const Json bad = lines_of(live, batch["error_file_id"]).at("bad")["response"];
  EXPECT_EQ(bad["body"]["error"]["param"], "background");
}

TEST(BatchEndpoints, WhatCannotBeABatchIsRefused) {
  LiveServer live;
  live.start();
  const std::string file = live.upload(chat_lines(1, 1)).json["id"];
  const HttpAnswer unknown =
      live.post("/v1/batches", {{"input_file_id", "file-x"}, {"endpoint", kChat}});
  EXPECT_EQ(unknown.status, 404);
  EXPECT_EQ(unknown.param(), "\"input_file_id\"");
  EXPECT_EQ(live.post("/v1/batches", {{"endpoint", kChat}}).param(), "\"input_file_id\"");
  EXPECT_EQ(live.post("/v1/batches", {{"input_file_id", file}, {"endpoint", "/v1/x"}}).param(),
            "\"endpoint\"");
  EXPECT_EQ(live.post("/v1/batches",
                      {{"input_file_id", file}, {"endpoint", kChat}, {"completion_window", "1y"}})
                .param(),
            "\"completion_window\"");
  EXPECT_EQ(live.get("/v1/batches/batch_nothing").status, 404);
  EXPECT_EQ(live.post("/v1/batches/batch_nothing/cancel", Json::object()).status, 404);
  const HttpAnswer week = live.post("/v1/batches", {{"input_file_id", file},
                                                    {"endpoint", kChat},
                                                    {"completion_window", "7d"},
                                                    {"metadata", {{"a", "b\"c"}}}});
  EXPECT_EQ(week.json["completion_window"], "168h");
  EXPECT_EQ(week.json["metadata"], Json({{"a", "b\"c"}}));
  // The file of its output is no input, and an input is not deleted while it is one.
  const Json batch = live.wait_for_batch(week.json["id"]);
  const HttpAnswer wrong =
      live.post("/v1/batches", {{"input_file_id", batch["output_file_id"]}, {"endpoint", kChat}});
  EXPECT_EQ(wrong.status, 400);
  EXPECT_EQ(wrong.param(), "\"input_file_id\"");
  const HttpAnswer failed = create(live, "no json at all\n");
  const Json ended = live.wait_for_batch(failed.json["id"]);
  EXPECT_EQ(ended["status"], "failed");
  EXPECT_EQ(ended["errors"]["object"], "list");
  EXPECT_EQ(ended["errors"]["data"][0]["code"], "invalid_json_line");
  EXPECT_EQ(ended["errors"]["data"][0]["line"], 1);
}

TEST(BatchEndpoints, CancelStopsWhatRuns) {
  LiveServer live;
  live.start(2);
  const std::string id = create(live, chat_lines(200, 900)).json["id"];
  ASSERT_TRUE(
      eventually([&] { return live.get("/v1/batches/" + id).json["status"] == "in_progress"; },
                 std::chrono::seconds(10)));
  const HttpAnswer cancelled = live.post("/v1/batches/" + id + "/cancel", Json::object());
  EXPECT_EQ(cancelled.json["status"], "cancelling") << cancelled.text;
  const Json batch = live.wait_for_batch(id);
  EXPECT_EQ(batch["status"], "cancelled");
  const Json counts = batch["request_counts"];
  EXPECT_EQ(counts["total"], 200);
  EXPECT_LT(counts["completed"].get<int>(), 200);
  EXPECT_EQ(lines_of(live, batch["output_file_id"]).size(), counts["completed"]);
  EXPECT_EQ(live.post("/v1/batches/" + id + "/cancel", Json::object()).json["status"], "cancelled");
  // Nothing of it runs on: the next one has the engine for itself.
  EXPECT_EQ(live.wait_for_batch(create(live, chat_lines(1, 2)).json["id"])["status"], "completed");
}

TEST(BatchEndpoints, PagesAndTenants) {
  LiveServer live;
  const std::string a = live.add_key("a"), b = live.add_key("b"),
                    admin = live.add_key("root", {}, true);
  live.start();
  std::vector<std::string> ids;
  for (int i = 0; i < 3; ++i) ids.push_back(create(live, chat_lines(1, 1), a).json["id"]);
  const Json page = live.get("/v1/batches?limit=2", a).json;
  EXPECT_EQ(page["data"][0]["id"], ids[2]);
  EXPECT_EQ(page["first_id"], ids[2]);
  EXPECT_EQ(page["has_more"], true);
  const Json rest = live.get("/v1/batches?limit=2&after=" + ids[1], a).json;
  EXPECT_EQ(rest["data"].size(), 1U);
  EXPECT_EQ(rest["has_more"], false);
  EXPECT_EQ(live.get("/v1/batches?limit=101", a).param(), "\"limit\"");

  EXPECT_EQ(live.get("/v1/batches", b).json["data"].size(), 0U);
  EXPECT_EQ(live.get("/v1/batches", admin).json["data"].size(), 3U);
  EXPECT_EQ(live.get("/v1/batches/" + ids[0], b).status, 404);
  EXPECT_EQ(live.get("/v1/batches/" + ids[0], admin).status, 200);
  EXPECT_EQ(live.post("/v1/batches/" + ids[0] + "/cancel", Json::object(), b).status, 404);
  EXPECT_EQ(live.get("/v1/batches", "sk-no").status, 401);
  const std::string file = live.upload(chat_lines(1, 1), a).json["id"];
  const Json body = {{"input_file_id", file}, {"endpoint", kChat}};
  EXPECT_EQ(live.post("/v1/batches", body, b).status, 404) << "another's input";
  const Json batch = live.wait_for_batch(ids[0], a);
  const std::string output = batch["output_file_id"];
  EXPECT_EQ(live.get("/v1/files/" + output, b).status, 404);
  EXPECT_EQ(live.get("/v1/files/" + output, a).status, 200) << "the creator owns the output";
}

TEST(BatchEndpoints, ABatchRunsWithTheRightsOfItsCreator) {
  LiveServer live;
  const std::string key = live.add_key("one", {"org/other"});
  live.start();
  const std::string input = line_of("mine", chat_body("x", 2, {{"model", "org/other"}})) +
                            line_of("not", chat_body("x", 2, {{"model", "tiny"}}));
  const Json batch = live.wait_for_batch(create(live, input, key).json["id"], key);
  EXPECT_EQ(lines_of(live, batch["output_file_id"], key).count("mine"), 1U);
  EXPECT_EQ(lines_of(live, batch["error_file_id"], key).at("not")["response"]["status_code"], 403);
}

TEST(BatchEndpoints, LinesOfAModelThatCannotBeLoadedEndWithThatError) {
  LiveServer live;
  live.start();
  std::string input;
  for (int i = 0; i < 10; ++i) {
    input += line_of("b" + std::to_string(i), chat_body("x", 2, {{"model", "broken"}}));
  }
  const std::string stuck = create(live, input).json["id"];
  const std::string fine = create(live, chat_lines(20, 2)).json["id"];
  EXPECT_EQ(live.wait_for_batch(fine)["status"], "completed");
  const Json batch = live.wait_for_batch(stuck);
  EXPECT_EQ(batch["request_counts"], Json({{"total", 10}, {"completed", 0}, {"failed", 10}}));
  const Json line = lines_of(live, batch["error_file_id"]).at("b3");
  EXPECT_EQ(line["response"]["status_code"], 503);
  EXPECT_EQ(line["response"]["body"]["error"]["code"], "model_load_failed");
}

TEST(BatchEndpoints, TheNextServerGoesOn) {
  LiveServer live;
  live.start(2);
  const std::string id = create(live, chat_lines(40, 60)).json["id"];
  ASSERT_TRUE(eventually(
      [&] {
        return live.get("/v1/batches/" + id).json["request_counts"]["completed"].get<int>() >= 3;
      },
      std::chrono::seconds(20)));
  live.stop();
  live.start(2);
  const Json batch = live.wait_for_batch(id);
  EXPECT_EQ(batch["request_counts"], Json({{"total", 40}, {"completed", 40}, {"failed", 0}}));
  EXPECT_EQ(lines_of(live, batch["output_file_id"]).size(), 40U);
}

TEST(RequestEndpoints, ExplainAndCancel) {
  LiveServer live(1);
  const std::string a = live.add_key("a"), b = live.add_key("b"),
                    admin = live.add_key("root", {}, true);
  live.start();
  // One that runs for long, and one that waits behind it.
  std::vector<RawClient> clients;
  std::vector<std::string> ids;
  for (int i = 0; i < 2; ++i) {
    clients.push_back(live.client());
    const Json body = chat_body("x", 990, {{"stream", true}});
    clients.back().send(LiveServer::request("POST", kChat, a, "application/json", body.dump()));
    if (i == 0) {
      const std::string first = clients.back().read_until("\"id\":\"chatcmpl-", 10'000);
      ASSERT_FALSE(first.empty());
      ids.push_back("chatcmpl-" + clients.back().read_until("\"", 2'000));
      ids.back().pop_back();
    }
  }
  const std::string path = "/v1/requests/" + ids[0];
  const HttpAnswer explained = live.get(path, a);
  ASSERT_EQ(explained.status, 200) << explained.text;
  EXPECT_EQ(explained.json["id"], ids[0]);
  EXPECT_EQ(explained.json["object"], "request");
  EXPECT_EQ(explained.json["model"], "tiny");
  EXPECT_EQ(explained.json["state"], "running");
  EXPECT_EQ(explained.json["class"], "normal");
  EXPECT_EQ(explained.json["seed"], 7);
  EXPECT_LE(explained.json["effective_priority"].get<double>(), 1.0);
  EXPECT_GT(explained.json["blocks"], 0);
  EXPECT_EQ(explained.json["queue_position"], 0);
  EXPECT_EQ(explained.json["preemptions"], 0);
  EXPECT_TRUE(explained.json["explanation"].is_string());
  EXPECT_EQ(explained.json["choices"].size(), 1U);
  EXPECT_EQ(live.get(path, b).status, 404);
  EXPECT_EQ(live.get(path, admin).status, 200);
  EXPECT_EQ(live.get(path).status, 401);
  EXPECT_EQ(live.get("/v1/requests/chatcmpl-nobody", a).status, 404);
  EXPECT_EQ(live.remove(path, b).status, 404);
  EXPECT_EQ(live.remove(path, a).json["cancelled"], true);
  EXPECT_TRUE(eventually([&] { return live.get(path, a).status == 404; }));
  EXPECT_EQ(live.remove(path, a).status, 404);
}

}  // namespace
}  // namespace skein::testing
