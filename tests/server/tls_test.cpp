// TLS, driven by the openssl command.
#include <cstdio>
#include <filesystem>
#include <gtest/gtest.h>
#include <thread>

#include "base/needs.h"
#include "server/test_application.h"

namespace skein {
namespace {

using namespace std::chrono_literals;

std::string output_of(const std::string& command) {
  std::string out;
  FILE* pipe = popen(command.c_str(), "r");
  char buffer[4096];
  while (const size_t got = fread(buffer, 1, sizeof(buffer), pipe)) out.append(buffer, got);
  pclose(pipe);
  return out;
}

TEST(Tls, ServesPlainAndStreamedAnswers) {
  const auto folder =
      std::filesystem::temp_directory_path() / fmt::format("skein-tls-{}", getpid());
  std::filesystem::create_directories(folder);
  const std::string cert = folder / "cert.pem", key = folder / "key.pem";
  output_of(
      fmt::format("openssl req -x509 -newkey rsa:2048 -nodes -subj /CN=x -days 1 -keyout {} "
                  "-out {} 2>/dev/null",
                  key, cert));
  SKEIN_NEEDS(std::filesystem::exists(cert), "there is no openssl command");
  http::ServerOptions options;
  options.tls = http::TlsFiles{cert, key};
  testing::TestServer test(options);
  test.application.handlers["/stream"] = [](const http::Request&,
                                            const http::Responder& responder) {
    responder.start({});
    for (int i = 0; i < 3; ++i) {
      responder.write(fmt::format("data: {}\n\n", i));
      std::this_thread::sleep_for(10ms);
    }
    responder.finish();
  };
  test.start();
  const std::string received = output_of(fmt::format(
      "printf 'GET /echo HTTP/1.1\\r\\nHost: x\\r\\n\\r\\nGET /stream HTTP/1.1\\r\\nHost: x\\r\\n"
      "Connection: close\\r\\n\\r\\n' | timeout 5 openssl s_client -quiet -no_ign_eof -ign_eof "
      "-connect 127.0.0.1:{} 2>/dev/null",
      test.server.port()));
  EXPECT_NE(received.find("GET:"), std::string::npos) << received;
  EXPECT_NE(received.find("data: 2\n\n"), std::string::npos) << received;

  testing::RawClient plain = test.client();  // not TLS at all
  plain.send(testing::get("/echo"));
  plain.read_all();
  EXPECT_TRUE(plain.ended());
  std::filesystem::remove_all(folder);
}

}  // namespace
}  // namespace skein
