// /v1/files: uploads of every shape, pages, contents, tenants.
#include <filesystem>
#include <gtest/gtest.h>

#include "server/live_server.h"

namespace skein::testing {
namespace {

constexpr const char* kForm = "multipart/form-data; boundary=XX";
const std::string kPurpose =
    "--XX\r\nContent-Disposition: form-data; name=\"purpose\"\r\n\r\nbatch\r\n";
const std::string kFileHead =
    "--XX\r\nContent-Disposition: form-data; name=\"file\"; filename=\"a.jsonl\"\r\n\r\n";
const std::string kEnd = "\r\n--XX--\r\n";

size_t files_on_disk(const LiveServer& live) {
  size_t count = 0;
  for (const auto& entry : std::filesystem::directory_iterator(live.state_dir() + "/files")) {
    count += entry.is_regular_file() ? 1 : 0;
  }
  return count;
}

TEST(FileEndpoints, UploadLookUpListReadDelete) {
  LiveServer live;
  live.start();
  const HttpAnswer made = live.upload("{\"a\": 1}\n");
  ASSERT_EQ(made.status, 200) << made.text;
  const std::string id = made.json["id"];
  EXPECT_EQ(made.json["object"], "file");
  EXPECT_EQ(made.json["bytes"], 9);
  EXPECT_EQ(made.json["filename"], "in.jsonl");
  EXPECT_EQ(made.json["purpose"], "batch");
  EXPECT_EQ(made.json["status"], "processed");
  EXPECT_EQ(live.get("/v1/files/" + id).json, made.json);
  const HttpAnswer content = live.get("/v1/files/" + id + "/content");
  EXPECT_EQ(content.text, "{\"a\": 1}\n");
  EXPECT_NE(content.head.find("application/octet-stream"), std::string::npos);
  EXPECT_EQ(live.get("/v1/files").json["data"], Json::array({made.json}));
  EXPECT_EQ(live.remove("/v1/files/" + id).json,
            Json({{"id", id}, {"object", "file"}, {"deleted", true}}));
  EXPECT_EQ(live.get("/v1/files/" + id).status, 404);
  EXPECT_EQ(live.get("/v1/files/" + id + "/content").status, 404);
  EXPECT_EQ(live.remove("/v1/files/" + id).status, 404);
  EXPECT_EQ(live.get("/v1/files").json, Json({{"object", "list"},
                                              {"data", Json::array()},
                                              {"first_id", nullptr},
                                              {"last_id", nullptr},
                                              {"has_more", false}}));
}

TEST(FileEndpoints, PagesJoinToTheWhole) {
  LiveServer live;
  live.start();
  std::vector<std::string> ids;
  for (int i = 0; i < 7; ++i) ids.push_back(live.upload(std::to_string(i)).json["id"]);
  for (const std::string& order : {std::string("asc"), std::string("desc")}) {
    std::vector<std::string> seen;
    std::string after;
    for (bool more = true; more;) {
      const Json page = live.get("/v1/files?limit=3&order=" + order + after).json;
      for (const Json& file : page["data"]) seen.push_back(file["id"]);
      EXPECT_EQ(page["last_id"], seen.back());
      after = "&after=" + seen.back();
      more = page["has_more"];
    }
    if (order == "desc") std::reverse(seen.begin(), seen.end());
    EXPECT_EQ(seen, ids) << order;
  }
  EXPECT_EQ(live.get("/v1/files?purpose=batch_output").json["data"].size(), 0U);
  EXPECT_EQ(live.get("/v1/files?purpose=batch").json["data"].size(), 7U);
  for (const char* query : {"limit=0", "limit=-1", "limit=x", "limit=", "limit=99999999999"}) {
    EXPECT_EQ(live.get(std::string("/v1/files?") + query).param(), "\"limit\"") << query;
  }
  EXPECT_EQ(live.get("/v1/files?order=up").param(), "\"order\"");
  EXPECT_EQ(live.get("/v1/files?after=file-nothing").param(), "\"after\"");
}

TEST(FileEndpoints, FormsThatAreRefusedLeaveNothing) {
  LiveServer live;
  live.start();
  const std::string good = kPurpose + kFileHead + "data" + kEnd;
  const auto form = [&](const std::string& body, const std::string& type = kForm) {
    return live.ask("POST", "/v1/files", "", type, body);
  };
  struct Case {
    std::string body;
    std::string param;
  };
  const std::string long_name(600, 'n');
  for (const Case& wrong : {
           Case{kFileHead + "data" + kEnd, "\"purpose\""},
           Case{kPurpose + kEnd.substr(2), "\"file\""},
           Case{"--XX\r\nContent-Disposition: form-data; name=\"purpose\"\r\n\r\nfine-tune\r\n" +
                    kFileHead + "data" + kEnd,
                "\"purpose\""},
           Case{kPurpose + kPurpose + kFileHead + "data" + kEnd, "\"purpose\""},
           Case{kPurpose + kFileHead + "data\r\n" + kFileHead + "more" + kEnd, "\"file\""},
           Case{kPurpose + "--XX\r\nContent-Disposition: form-data; name=\"file\"\r\n\r\nx" + kEnd,
                "\"file\""},
           Case{kPurpose +
                    "--XX\r\nContent-Disposition: form-data; name=file; filename=\"\"\r\n\r\nx" +
                    kEnd,
                "\"file\""},
           Case{kPurpose + "--XX\r\nContent-Disposition: form-data; name=file; filename=" +
                    long_name + "\r\n\r\nx" + kEnd,
                "\"file\""},
           Case{kPurpose + kFileHead + "data", "null"},
           Case{kPurpose + kFileHead + "data\r\n--XX", "null"},
           Case{"", "null"},
           Case{"x", "null"},
           Case{"--YY\r\n" + good, "null"},
       }) {
    const HttpAnswer answer = form(wrong.body);
    EXPECT_EQ(answer.status, 400) << wrong.body;
    EXPECT_EQ(answer.param(), wrong.param) << wrong.body;
    EXPECT_TRUE(answer.json["error"]["message"].is_string()) << answer.text;
  }
  for (const char* type : {"multipart/form-data", "multipart/form-data; boundary="}) {
    EXPECT_EQ(form(good, type).status, 400) << type;
  }
  for (const char* type : {"", "application/json", "multipart/mixed", "text/plain; boundary=XX"}) {
    EXPECT_EQ(form(good, type).status, 415) << type;
  }
  EXPECT_TRUE(eventually([&] { return files_on_disk(live) == 0; })) << files_on_disk(live);
  EXPECT_EQ(live.get("/v1/files").json["data"].size(), 0U);
  EXPECT_EQ(form(good).status, 200) << "and the server still takes good ones";
  EXPECT_EQ(form("--XX\r\nContent-Disposition: form-data; name=\"expires_after[seconds]\"\r\n\r\n"
                 "3600\r\n" +
                 kFileHead + "data\r\n" + kPurpose + "--XX--")
                .status,
            200)
      << "fields that are not known, and the purpose last";
}

TEST(FileEndpoints, AnUploadThatIsCutOffLeavesNothing) {
  LiveServer live;
  live.start();
  {
    RawClient client = live.client();
    client.send(
        fmt::format("POST /v1/files HTTP/1.1\r\nHost: localhost\r\nContent-Type: {}\r\n"
                    "Content-Length: 9000000\r\n\r\n{}{}{}",
                    kForm, kPurpose, kFileHead, std::string(1 << 20, 'z')));
    EXPECT_TRUE(eventually([&] { return files_on_disk(live) == 1; }));
  }
  EXPECT_TRUE(eventually([&] { return files_on_disk(live) == 0; }));
}

TEST(FileEndpoints, AnyBytesComeBackAsTheyWere) {
  LiveServer live;
  live.start();
  std::string bytes;
  for (int i = 0; i < (3 << 20); ++i) bytes.push_back(static_cast<char>((i * 2654435761U) >> 24));
  bytes += "\r\n--X\r\n--XY\r\n\r\n--";
  const HttpAnswer made = live.upload(bytes);
  ASSERT_EQ(made.status, 200) << made.text;
  const std::string path = "/v1/files/" + made.json["id"].get<std::string>() + "/content";
  EXPECT_TRUE(live.get(path).text == bytes);
  // A reader that takes its time gets all of it, too.
  RawClient slow = live.client(4096);
  slow.send(get(path));
  std::string got;
  for (int i = 0; got.size() < bytes.size() && slow.receive(5000); ++i) {
    got += std::exchange(slow.received(), {});
    if (i % 64 == 0) usleep(1000);
    if (i == 0) got.erase(0, got.find("\r\n\r\n") + 4);
  }
  EXPECT_TRUE(got == bytes) << got.size() << " of " << bytes.size();
  // And one that goes away in the middle costs nothing.
  {
    RawClient gone = live.client(4096);
    gone.send(get(path));
    gone.receive();
  }
  const RawClient::Answer head = [&] {
    RawClient client = live.client();
    client.send("HEAD " + path + " HTTP/1.1\r\nHost: localhost\r\n\r\n");
    return client.read_answer(testing::kPatienceMs, false);
  }();
  EXPECT_EQ(head.status, 200);
  EXPECT_NE(head.head.find(fmt::format("Content-Length: {}\r\n", bytes.size())), std::string::npos)
      << head.head;
  EXPECT_EQ(live.upload("").status, 200) << "an empty file is a file";
  EXPECT_EQ(live.get("/v1/files").json["data"].size(), 2U);
}

TEST(FileEndpoints, TenantsDoNotSeeEachOther) {
  LiveServer live;
  const std::string a = live.add_key("a"), b = live.add_key("b"),
                    admin = live.add_key("root", {}, true);
  live.start();
  const std::string id = live.upload("secret", a).json["id"];
  for (const std::string& path : {"/v1/files/" + id, "/v1/files/" + id + "/content"}) {
    EXPECT_EQ(live.get(path, a).status, 200) << path;
    EXPECT_EQ(live.get(path, admin).status, 200) << path;
    const HttpAnswer other = live.get(path, b);
    EXPECT_EQ(other.status, 404) << path;
    EXPECT_EQ(other.text, live.get("/v1/files/file-000000000000000000000000", b).text)
        << "no word tells that it exists";
  }
  EXPECT_EQ(live.get("/v1/files", b).json["data"].size(), 0U);
  EXPECT_EQ(live.get("/v1/files?after=" + id, b).status, 400);
  EXPECT_EQ(live.get("/v1/files", admin).json["data"].size(), 1U);
  EXPECT_EQ(live.remove("/v1/files/" + id, b).status, 404);
  EXPECT_EQ(live.get("/v1/files/" + id, a).status, 200);
  EXPECT_EQ(live.upload("x").status, 401);
  EXPECT_EQ(live.remove("/v1/files/" + id, admin).status, 200);
}

}  // namespace
}  // namespace skein::testing
