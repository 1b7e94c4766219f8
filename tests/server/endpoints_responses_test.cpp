// /v1/responses that are kept: continued, looked up, listed and deleted, by key and over restarts.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "server/live_server.h"

namespace skein {
namespace {

using ::testing::HasSubstr;
using testing::HttpAnswer;
using testing::Json;
using testing::LiveServer;

constexpr const char* kPath = "/v1/responses";

Json body_of(const Json& input, const std::string& previous = "") {
  Json body = {{"input", input}, {"max_output_tokens", 24}, {"temperature", 0}, {"seed", 7}};
  if (!previous.empty()) body["previous_response_id"] = previous;
  return body;
}

std::string path_of(const HttpAnswer& answer, const std::string& rest = "") {
  return fmt::format("{}/{}{}", kPath, answer.json.value("id", "none"), rest);
}

// What a stream says, without the frames of HTTP.
std::string stream_of(LiveServer& live, std::string_view path, Json body) {
  body["stream"] = true;
  testing::RawClient client = live.client();
  client.send(LiveServer::request("POST", path, {}, "application/json", body.dump()));
  std::string raw = client.read_until("\r\n0\r\n\r\n", 20'000);
  raw.erase(0, raw.find("\r\n\r\n") + 4);
  std::string text;
  for (size_t at = 0; at < raw.size();) {
    const size_t begin = raw.find("\r\n", at) + 2;
    const size_t length = std::strtoul(&raw[at], nullptr, 16);
    text += raw.substr(begin, length);
    at = begin + length + 2;
  }
  return text;
}

// The last response of a stream.
Json last_response(const std::string& stream) {
  const size_t at = stream.rfind("\ndata: ");
  if (at == std::string::npos) return {};
  return Json::parse(stream.substr(at + 7))["response"];
}

// The answer without what is its own.
std::string said(Json response) {
  for (Json& item : response["output"]) item.erase("id");
  return response["output"].dump();
}

TEST(ResponseEndpoints, KeptLookedUpAndDeleted) {
  LiveServer live;
  live.start();
  const HttpAnswer made = live.post(kPath, body_of("Hi"));
  ASSERT_EQ(made.status, 200) << made.text;
  EXPECT_EQ(made.json["store"], true);
  EXPECT_EQ(made.json["previous_response_id"], nullptr);
  EXPECT_EQ(live.get(path_of(made)).text, made.text) << "byte for byte";
  EXPECT_EQ(live.get(path_of(made) + "?stream=true").status, 400);
  EXPECT_EQ(live.remove(path_of(made)).json,
            Json({{"id", made.json["id"]}, {"object", "response"}, {"deleted", true}}));
  for (const char* rest : {"", "/input_items"}) {
    EXPECT_EQ(live.get(path_of(made, rest)).status, 404) << rest;
  }
  EXPECT_EQ(live.remove(path_of(made)).status, 404);
  const HttpAnswer gone = live.post(kPath, body_of("x", made.json["id"]));
  EXPECT_EQ(gone.status, 404);
  EXPECT_EQ(gone.param(), "\"previous_response_id\"");
  EXPECT_EQ(gone.error_code(), "\"previous_response_not_found\"");
  Json unkept = body_of("Hi");
  unkept["store"] = false;
  const HttpAnswer passing = live.post(kPath, unkept);
  EXPECT_EQ(passing.json["store"], false);
  EXPECT_EQ(live.get(path_of(passing)).status, 404);
}

TEST(ResponseEndpoints, AStreamIsKeptAsItsLastEventHasIt) {
  LiveServer live;
  live.start();
  const std::string stream = stream_of(live, kPath, body_of("Hi"));
  const Json last = last_response(stream);
  ASSERT_EQ(last.value("store", false), true) << stream;
  const HttpAnswer kept = live.get(fmt::format("{}/{}", kPath, last["id"].get<std::string>()));
  EXPECT_EQ(kept.json, last);
  EXPECT_THAT(stream, HasSubstr(kept.text)) << "byte for byte";
}

// The same prompt, found in the cache; the same answer.
TEST(ResponseEndpoints, AContinuedConversationIsTheOneThatIsSentWhole) {
  for (const bool restart : {false, true}) {
    LiveServer live;
    live.start();
    Json items = Json::array();
    std::string previous;
    for (const char* input : {"Hi", "And then?", "Go on."}) {
      Json body = body_of(input, previous);
      body["instructions"] = std::string("Be ") + input;  // not carried over
      const Json answer = items.size() == 2 ? live.post(kPath, body).json
                                            : last_response(stream_of(live, kPath, body));
      ASSERT_EQ(answer.value("store", false), true) << answer.dump();
      if (restart) {
        live.stop();
        live.start();
      }
      items.push_back({{"role", "user"}, {"content", input}});
      body.erase("previous_response_id");
      body["store"] = false;
      body["input"] = items;
      const HttpAnswer whole = live.post(kPath, body);
      ASSERT_EQ(whole.status, 200) << whole.text;
      EXPECT_EQ(said(answer), said(whole.json));
      EXPECT_EQ(answer["usage"]["input_tokens"], whole.json["usage"]["input_tokens"]);
      if (!restart) {  // all but what does not fill a block
        EXPECT_GT(whole.json["usage"]["input_tokens_details"]["cached_tokens"].get<int>(),
                  whole.json["usage"]["input_tokens"].get<int>() - 33);
      }
      EXPECT_EQ(answer["previous_response_id"], previous.empty() ? Json() : Json(previous));
      for (const Json& item : answer["output"]) items.push_back(item);
      previous = answer["id"];
    }
    // Every turn's own instructions are a system message; all else is one conversation.
    const HttpAnswer counted = live.post("/v1/responses/input_tokens",
                                         {{"input", "x"}, {"previous_response_id", previous}});
    items.push_back({{"role", "user"}, {"content", "x"}});
    EXPECT_EQ(counted.json["input_tokens"],
              live.post("/v1/responses/input_tokens", {{"input", items}}).json["input_tokens"])
        << counted.text;
  }
}

TEST(ResponseEndpoints, InputItemsInPages) {
  LiveServer live;
  live.start();
  const HttpAnswer first = live.post(kPath, body_of("one"));
  const HttpAnswer second = live.post(
      kPath, body_of(Json::array({{{"role", "user"}, {"content", "two"}},
                                  {{"role", "user"}, {"content", "three"}, {"id", "msg_mine"}}}),
                     first.json["id"]));
  ASSERT_EQ(second.status, 200) << second.text;
  const HttpAnswer own = live.get(path_of(first, "/input_items"));
  ASSERT_EQ(own.json["data"].size(), 1U) << own.text;
  EXPECT_EQ(own.json["data"][0]["content"][0]["text"], "one");
  const HttpAnswer all = live.get(path_of(second, "/input_items?order=asc"));
  ASSERT_EQ(all.status, 200) << all.text;
  const Json& items = all.json["data"];
  ASSERT_EQ(items.size(), 3 + first.json["output"].size());
  EXPECT_EQ(items[0], own.json["data"][0]);
  EXPECT_EQ(items[1]["id"], first.json["output"][0]["id"]);
  EXPECT_EQ(items.back()["id"], "msg_mine");
  EXPECT_EQ(all.json["first_id"], items[0]["id"]);
  EXPECT_EQ(all.json["last_id"], "msg_mine");
  EXPECT_EQ(all.json["has_more"], false);
  for (const bool ascending : {true, false}) {
    Json joined = Json::array();
    std::string after;
    for (bool more = true; more;) {
      const HttpAnswer page =
          live.get(path_of(second, fmt::format("/input_items?limit=1&order={}{}",
                                               ascending ? "asc" : "desc", after)));
      ASSERT_EQ(page.json["data"].size(), 1U) << page.text;
      joined.push_back(page.json["data"][0]);
      after = "&after=" + page.json["last_id"].get<std::string>();
      more = page.json["has_more"];
    }
    if (!ascending) std::reverse(joined.begin(), joined.end());
    EXPECT_EQ(joined, items);
  }
  for (const char* bad : {"limit=0", "limit=101", "limit=x", "order=up", "after=msg_0"}) {
    const HttpAnswer refused = live.get(path_of(second, std::string("/input_items?") + bad));
    EXPECT_EQ(refused.status, 400) << bad;
    EXPECT_EQ(refused.param(),
              "\"" + std::string(bad).substr(0, std::string(bad).find('=')) + "\"");
  }
  EXPECT_EQ(live.get(path_of(second, "/input_items?limit=100")).status, 200);
}

// An item that is named by its id is as if it had been sent.
TEST(ResponseEndpoints, ItemsCanBeNamed) {
  LiveServer live;
  const std::string mine = live.add_key("mine"), other = live.add_key("other");
  live.start();
  const HttpAnswer first = live.post(kPath, body_of("one"), mine);
  ASSERT_EQ(first.status, 200) << first.text;
  const std::string asked = live.get(path_of(first, "/input_items"), mine).json["data"][0]["id"];
  const std::string answered = first.json["output"][0]["id"];
  const auto input_of = [](std::vector<Json> items) {
    items.push_back({{"role", "user"}, {"content", "two"}});
    return Json(items);
  };
  const auto named = [](const std::string& id) {
    return Json({{"type", "item_reference"}, {"id", id}});
  };
  const HttpAnswer whole = live.post(
      kPath, body_of(input_of({{{"role", "user"}, {"content", "one"}}, first.json["output"][0]})),
      mine);
  const HttpAnswer by_name =
      live.post(kPath, body_of(input_of({named(asked), {{"id", answered}}})), mine);
  ASSERT_EQ(by_name.status, 200) << by_name.text;
  EXPECT_EQ(said(by_name.json), said(whole.json));
  EXPECT_EQ(by_name.json["usage"]["input_tokens"], whole.json["usage"]["input_tokens"]);
  const Json kept = live.get(path_of(by_name, "/input_items?order=asc"), mine).json["data"];
  ASSERT_EQ(kept.size(), 3U);
  EXPECT_EQ(kept[0]["content"][0]["text"], "one") << "it does not need the first one any more";
  // Behind a response that is continued, too.
  EXPECT_EQ(live.post(kPath, body_of(input_of({named(asked)}), first.json["id"]), mine).status,
            200);

  const std::string none = "msg_" + std::string(32, '0') + "0";
  for (const std::string& id : {none, std::string("x"), std::string("msg_1"), answered + "7",
                                answered.substr(0, answered.size() - 1), std::string(5000, 'a')}) {
    const HttpAnswer missing = live.post(kPath, body_of(input_of({named(id)})), mine);
    EXPECT_EQ(missing.status, 404) << id;
    EXPECT_EQ(missing.param(), "\"input[0].id\"");
    EXPECT_EQ(missing.error_code(), "\"item_not_found\"");
    EXPECT_THAT(missing.text, HasSubstr(id.substr(0, 100)));
  }
  EXPECT_EQ(live.post(kPath, body_of(input_of({named(answered)})), other).status, 404);
  const HttpAnswer twice =
      live.post(kPath, body_of(input_of({named(answered), named(answered)})), mine);
  EXPECT_EQ(twice.status, 400);
  EXPECT_EQ(twice.param(), "\"input[1].id\"");
  std::vector<Json> many;
  for (int i = 0; i < 129; ++i) many.push_back(named(fmt::format("msg_{:032x}0", i)));
  EXPECT_EQ(live.post(kPath, body_of(input_of(many)), mine).status, 400);
  many.pop_back();
  EXPECT_EQ(live.post(kPath, body_of(input_of(many)), mine).status, 404);
}

TEST(ResponseEndpoints, AnotherKeysIsNoneAtAll) {
  LiveServer live;
  const std::string mine = live.add_key("mine"), other = live.add_key("other"),
                    admin = live.add_key("admin", {}, true);
  live.start();
  const HttpAnswer made = live.post(kPath, body_of("Hi"), mine);
  ASSERT_EQ(made.status, 200) << made.text;
  const auto without_id = [](std::string text, const std::string& id) {
    for (size_t at; (at = text.find(id)) != std::string::npos;) text.erase(at, id.size());
    return text;
  };
  const std::string id = made.json["id"], none = "resp_" + std::string(32, '0');
  for (const char* rest : {"", "/input_items"}) {
    const HttpAnswer theirs = live.get(fmt::format("{}/{}{}", kPath, id, rest), other);
    const HttpAnswer nobodys = live.get(fmt::format("{}/{}{}", kPath, none, rest), other);
    EXPECT_EQ(theirs.status, 404);
    EXPECT_EQ(without_id(theirs.text, id), without_id(nobodys.text, none));
    EXPECT_EQ(live.get(fmt::format("{}/{}{}", kPath, id, rest), admin).status, 200);
  }
  EXPECT_EQ(live.remove(path_of(made), other).status, 404);
  for (const std::string& key : {other, admin}) {
    const HttpAnswer theirs = live.post(kPath, body_of("x", id), key);
    const HttpAnswer nobodys = live.post(kPath, body_of("x", none), key);
    EXPECT_EQ(theirs.status, 404) << "whoever it is: a conversation is one key's";
    EXPECT_EQ(theirs.text, nobodys.text);
  }
  EXPECT_EQ(live.post(kPath, body_of("x", id), mine).status, 200);
  EXPECT_EQ(live.get(path_of(made)).status, 401);
}

TEST(ResponseEndpoints, AServerThatKeepsNoneSaysSo) {
  LiveServer live;
  live.settings.store.response_limits.per_key = 0;
  live.start();
  Json body = body_of("Hi");
  body["store"] = true;
  const HttpAnswer made = live.post(kPath, body);
  ASSERT_EQ(made.status, 200) << made.text;
  EXPECT_EQ(made.json["store"], false);
  EXPECT_EQ(live.get(path_of(made)).status, 404);
  for (const char* path : {"/v1/responses", "/v1/responses/input_tokens"}) {
    const HttpAnswer refused = live.post(path, body_of("x", made.json["id"]));
    EXPECT_EQ(refused.status, 400);
    EXPECT_EQ(refused.param(), "\"previous_response_id\"");
  }
}

TEST(ResponseEndpoints, LimitsOfAKeyAndOfAConversation) {
  LiveServer live;
  live.settings.store.response_limits.per_key = 2;
  live.settings.store.response_limits.turns = 2;
  live.start();
  const HttpAnswer first = live.post(kPath, body_of("1"));
  const HttpAnswer second = live.post(kPath, body_of("2", first.json["id"]));
  EXPECT_EQ(live.get(path_of(first)).status, 200);
  const HttpAnswer third = live.post(kPath, body_of("3", second.json["id"]));
  ASSERT_EQ(third.status, 200) << third.text;
  EXPECT_EQ(live.get(path_of(first)).status, 404) << "the oldest has given way";
  const HttpAnswer beyond = live.post(kPath, body_of("4", third.json["id"]));
  EXPECT_EQ(beyond.status, 400);
  EXPECT_EQ(beyond.param(), "\"previous_response_id\"");
  EXPECT_THAT(beyond.text, HasSubstr("3 responses, and 2 is the most"));
}

// The answer is whole whatever becomes of it.
TEST(ResponseEndpoints, WhatCannotBeKeptIsAnsweredAndSaysSo) {
  LiveServer live;
  live.settings.store.min_free_bytes = uint64_t{1} << 60;  // more than any disk has
  live.start();
  for (const bool stream : {false, true}) {
    const Json response = stream ? last_response(stream_of(live, kPath, body_of("Hi")))
                                 : live.post(kPath, body_of("Hi")).json;
    ASSERT_EQ(response.value("store", true), false) << response.dump();
    EXPECT_EQ(response["status"], "incomplete");
    EXPECT_EQ(response["output"].size(), 1U);
    EXPECT_EQ(live.get(fmt::format("{}/{}", kPath, response["id"].get<std::string>())).status, 404);
  }
}

TEST(ResponseEndpoints, MemoryForWhatIsContinuedIsTheKeys) {
  LiveServer live;
  live.serving().engine.scheduler.pool_blocks = 256;
  live.settings.request_memory_bytes = 600'000;
  live.start();
  // Its text says little, and takes room.
  Json items = Json::array();
  items.push_back({{"role", "user"}, {"content", "Hi"}, {"note", std::string(30'000, 'x')}});
  const HttpAnswer first = live.post(kPath, body_of(items));
  ASSERT_EQ(first.status, 200) << first.text;
  EXPECT_EQ(first.json["store"], true);
  const HttpAnswer second = live.post(kPath, body_of(items, first.json["id"]));
  EXPECT_EQ(second.status, 503) << "six times what is read, for each of the two";
  EXPECT_EQ(second.error_code(), "\"overloaded\"");
  // What the refused one held goes a moment after its answer.
  EXPECT_TRUE(testing::eventually(
      [&] { return live.post(kPath, body_of("x", first.json["id"])).status == 200; }));
}

TEST(ResponseEndpoints, LinesOfABatchContinueAndAreKeptWhereTheyAsk) {
  LiveServer live;
  live.start();
  const HttpAnswer first = live.post(kPath, body_of("Hi"));
  const HttpAnswer expected = live.post(kPath, body_of("And?", first.json["id"]));
  std::string lines;
  const auto add_line = [&](const char* id, Json body) {
    lines +=
        Json({{"custom_id", id}, {"method", "POST"}, {"url", kPath}, {"body", body}}).dump() + "\n";
  };
  Json kept = body_of("And?", first.json["id"]);
  kept["store"] = true;
  add_line("kept", kept);
  add_line("not kept", body_of("And?", first.json["id"]));
  add_line("gone", body_of("And?", "resp_0"));
  const HttpAnswer batch = live.post(
      "/v1/batches", {{"input_file_id", live.upload(lines).json["id"]}, {"endpoint", kPath}});
  ASSERT_EQ(batch.status, 200) << batch.text;
  const Json done = live.wait_for_batch(batch.json["id"]);
  EXPECT_EQ(done["request_counts"], Json({{"total", 3}, {"completed", 2}, {"failed", 1}}));
  std::istringstream output(
      live.get("/v1/files/" + done["output_file_id"].get<std::string>() + "/content").text);
  for (std::string line; std::getline(output, line);) {
    const Json row = Json::parse(line), response = row["response"]["body"];
    EXPECT_EQ(said(response), said(expected.json)) << line;
    EXPECT_EQ(response["store"], row["custom_id"] == "kept");
    EXPECT_EQ(live.get(fmt::format("{}/{}", kPath, response["id"].get<std::string>())).status,
              row["custom_id"] == "kept" ? 200 : 404);
  }
  EXPECT_THAT(live.get("/v1/files/" + done["error_file_id"].get<std::string>() + "/content").text,
              HasSubstr("previous_response_not_found"));
}

// What was found in the cache is known with the first token.
TEST(ResponseEndpoints, TheFirstEventOfAMessageSaysWhatWasCached) {
  for (const bool batching : {true, false}) {
    LiveServer live;
    live.serving().enable_batching = batching;
    live.start();
    const Json body = {{"max_tokens", 4},
                       {"messages", {{{"role", "user"}, {"content", std::string(100, 'x')}}}}};
    const auto usage = [](const std::string& stream, const char* event) {
      const size_t at = stream.find(event);
      const size_t data = stream.find("data: ", at) + 6;
      Json frame = Json::parse(stream.substr(data, stream.find('\n', data) - data));
      return frame.contains("message") ? frame["message"]["usage"] : frame["usage"];
    };
    const std::string first = stream_of(live, "/v1/messages", body);
    EXPECT_EQ(usage(first, "event: message_start")["cache_read_input_tokens"], 0) << first;
    const std::string again = stream_of(live, "/v1/messages", body);
    const Json start = usage(again, "event: message_start"),
               end = usage(again, "event: message_delta");
    EXPECT_GT(start["cache_read_input_tokens"].get<int>(), 60) << again;
    EXPECT_EQ(start["cache_read_input_tokens"], end["cache_read_input_tokens"]);
    EXPECT_EQ(start["input_tokens"], end["input_tokens"]);
  }
}

}  // namespace
}  // namespace skein
