// A whole server in the test's process: a real model of a few hundred kilobytes whose tokens are
// bytes, a port of its own, a state folder of its own.
#pragma once

#include <filesystem>
#include <functional>
#include <gtest/gtest.h>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>
#include <thread>
#include <utility>

#include "engine/manager/load_served_model.h"
#include "format/test_folder.h"
#include "server/auth/api_key.h"
#include "server/http_client.h"
#include "server/server.h"
#include "server/store/store.h"

namespace skein::testing {

using Json = nlohmann::json;

// The golden llama with a tokenizer: 256 tokens, three of them control tokens, a context of 1,024.
// Without a chat template of its own it speaks ChatML.
inline std::string write_byte_model(const TestFolder& folder, const std::string& name = "tiny") {
  namespace fs = std::filesystem;
  const std::string golden = SKEIN_SOURCE_DIR "/build/goldens/llama/";
  const std::string path = folder / name;
  fs::create_directories(path);
  fs::copy_file(golden + "config.json", path + "/config.json");
  fs::copy_file(golden + "model.safetensors", path + "/model.safetensors");
  fs::copy_file(SKEIN_SOURCE_DIR "/tests/server/byte_tokenizer.json", path + "/tokenizer.json");
  return path;
}

struct HttpAnswer {
  int status = 0;  // 0: none came
  std::string head;
  std::string text;
  Json json;  // null when the text is none

  std::string error_code() const { return json["error"].value("code", Json()).dump(); }
  std::string param() const { return json["error"].value("param", Json()).dump(); }
};

class LiveServer {
 public:
  explicit LiveServer(uint32_t max_batch = 8) {
    write_byte_model(folder_);
    serving_.engine.scheduler.pool_blocks = 256;
    serving_.engine.scheduler.max_batch = max_batch;
  }
  ~LiveServer() { stop(); }

  // Before start(): the whole key.
  std::string add_key(const std::string& name, std::vector<std::string> models = {},
                      bool admin = false) {
    KeyRecord key;
    key.name = name;
    key.models = std::move(models);
    key.admin = admin;
    return add_key(std::move(key));
  }
  std::string add_key(KeyRecord key) {
    StoreOptions options;
    options.state_dir = state_dir();
    options.is_server = false;
    auto store = Store::open(options);
    EXPECT_TRUE(store.ok()) << store.message();
    const std::string id = make_key_id(), secret = make_secret();
    const KeyDigest digest = digest_secret(secret);
    key.id = id;
    key.salt = digest.salt;
    key.digest = digest.digest;
    const auto added =
        await<KeyRecord>([&](Done<KeyRecord> done) { (*store)->keys().add(key, std::move(done)); });
    EXPECT_TRUE(added.ok()) << added.message();
    return key_text(id, secret);
  }

  void start(size_t batch_lines = 4) {
    SchedulerManager::Loader loader = make_model_loader(serving_, pool_, clock_);
    if (change_loader) loader = change_loader(std::move(loader));
    models_ = std::make_unique<SchedulerManager>(
        SchedulerManager::Options{
            .memory_bytes = uint64_t{2} << 30, .max_models = max_models, .share = &share},
        [this, load = std::move(loader)](const auto& config, const auto& make_room) {
          if (before_load) before_load(config.id);
          return load(config, make_room);
        },
        clock_);
    for (const char* id : {"tiny", "org/other"}) {
      ASSERT_TRUE(models_->add({.id = id, .path = folder_ / "tiny"}).ok());
    }
    ASSERT_TRUE(models_->add({.id = "broken", .path = folder_ / "nothing"}).ok());
    settings.store.state_dir = state_dir();
    settings.default_model = "tiny";
    settings.version = "test";
    settings.batch_lines = batch_lines;
    auto server = Server::create(settings, *models_, clock_);
    ASSERT_TRUE(server.ok()) << server.message();
    server_ = std::move(*server);
    const Status status = server_->start();
    ASSERT_TRUE(status.ok()) << status.message();
    server_->set_ready();
  }
  void stop() {
    if (server_ != nullptr) server_->stop(std::chrono::seconds(1));
    if (models_ != nullptr) {
      EXPECT_TRUE(models_->shutdown(60 * kUsPerSecond)) << "an engine hangs";
    }
    server_ = nullptr;
    models_ = nullptr;
  }
  Server& server() { return *server_; }
  SchedulerManager& models() { return *models_; }

  // Before start(): models that a test wants different, and how many of them may be loaded.
  std::function<SchedulerManager::Loader(SchedulerManager::Loader)> change_loader;
  uint32_t max_models = 0;
  LoadShare share;  // that a loader may report to

  // Before start().
  ServerSettings settings;
  ServingOptions& serving() { return serving_; }
  std::function<void(const std::string& model)> before_load;  // on the thread that loads

  HttpAnswer get(std::string_view path, std::string_view key = {}) {
    return ask("GET", path, key, {}, {});
  }
  HttpAnswer remove(std::string_view path, std::string_view key = {}) {
    return ask("DELETE", path, key, {}, {});
  }
  HttpAnswer post(std::string_view path, const Json& body, std::string_view key = {}) {
    return ask("POST", path, key, "application/json", body.dump());
  }
  HttpAnswer ask(std::string_view method, std::string_view path, std::string_view key,
                 std::string_view type, std::string_view body) {
    RawClient client(server_->port());
    client.send(request(method, path, key, type, body));
    return read(client);
  }

  // A form with a file and its purpose.
  HttpAnswer upload(std::string_view text, std::string_view key = {},
                    std::string_view purpose = "batch") {
    const std::string body = fmt::format(
        "--XX\r\nContent-Disposition: form-data; name=\"purpose\"\r\n\r\n{}\r\n"
        "--XX\r\nContent-Disposition: form-data; name=\"file\"; filename=\"in.jsonl\"\r\n"
        "Content-Type: application/octet-stream\r\n\r\n{}\r\n--XX--\r\n",
        purpose, text);
    return ask("POST", "/v1/files", key, "multipart/form-data; boundary=XX", body);
  }

  // The batch when it has ended.
  Json wait_for_batch(const std::string& id, std::string_view key = {}) {
    Json batch;
    const bool ended = eventually(
        [&] {
          batch = get("/v1/batches/" + id, key).json;
          const std::string status = batch.value("status", "");
          return status == "completed" || status == "failed" || status == "cancelled" ||
                 status == "expired";
        },
        std::chrono::seconds(60));
    EXPECT_TRUE(ended) << batch.dump();
    return batch;
  }

  static std::string request(std::string_view method, std::string_view path, std::string_view key,
                             std::string_view type, std::string_view body) {
    std::string text = fmt::format("{} {} HTTP/1.1\r\nHost: localhost\r\n", method, path);
    if (!key.empty()) text += fmt::format("Authorization: Bearer {}\r\n", key);
    if (!type.empty()) text += fmt::format("Content-Type: {}\r\n", type);
    if (!body.empty()) text += fmt::format("Content-Length: {}\r\n", body.size());
    return text.append("\r\n").append(body);
  }
  static HttpAnswer read(RawClient& client) {
    const RawClient::Answer raw = client.read_answer(20'000);
    HttpAnswer answer{raw.status, raw.head, raw.body, Json::parse(raw.body, nullptr, false)};
    if (answer.json.is_discarded()) answer.json = nullptr;
    return answer;
  }
  RawClient client(int receive_buffer = 0) { return RawClient(server_->port(), receive_buffer); }
  std::string state_dir() const { return folder_ / "state"; }
  const TestFolder& folder() const { return folder_; }

 private:
  TestFolder folder_;
  SystemClock clock_;
  ComputePool pool_{1};
  ServingOptions serving_;
  std::unique_ptr<SchedulerManager> models_;
  std::unique_ptr<Server> server_;
};

}  // namespace skein::testing
