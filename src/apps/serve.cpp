#include <memory>
#include <string>
#include <vector>

#include "apps/commands.h"

namespace skein::apps {
namespace {

struct ServeOptions {
  std::vector<std::string> models;
  std::string host = "127.0.0.1";
  int port = 8080;
};

}  // namespace

void add_serve(CLI::App& app, CommandResult& result) {
  auto options = std::make_shared<ServeOptions>();
  CLI::App* serve =
      app.add_subcommand("serve", "Serve models over HTTP (OpenAI and Anthropic dialects)");
  serve->add_option("--model", options->models,
                    "GGUF file, Hugging Face folder or name; repeatable");
  serve->add_option("--host", options->host, "Address to listen on")->capture_default_str();
  serve->add_option("--port", options->port, "Port to listen on")
      ->check(CLI::Range(0, 65535))
      ->capture_default_str();
  serve->callback([options, &result] {
    result = unimplemented(
        "serve: this version has no HTTP server yet, so nothing listens on {}:{}; see CHANGELOG.md "
        "for what is there",
        options->host, options->port);
  });
}

}  // namespace skein::apps
