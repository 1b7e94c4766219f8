#include <algorithm>
#include <array>
#include <cstdio>
#include <ctime>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "apps/commands.h"
#include "apps/files.h"
#include "server/auth/api_key.h"
#include "server/store/store.h"

namespace skein::apps {
namespace {

struct KeyOptions {
  std::string state_dir = default_state_dir();
  std::string store;  // a URL; empty: the folder
  std::string name;
  std::string tier = "normal";
  std::vector<std::string> models;
  uint32_t rpm = 0;
  uint64_t tokens_per_minute = 0;
  bool admin = false;
  bool print_key_only = false;
  bool all = false;
};

enum class Missing : uint8_t { kCreate, kRefuse };

// A folder without a database is one that no key was ever made in: likely a mistyped name.
Result<std::unique_ptr<Store>> open_store(const KeyOptions& options, Missing missing) {
  if (!options.store.empty()) {
    return Store::open({.url = options.store, .is_server = false, .group_window_us = 0});
  }
  if (options.state_dir.empty()) {
    return invalid_argument("neither XDG_STATE_HOME nor HOME is set: give --state-dir");
  }
  if (missing == Missing::kRefuse && !Store::exists(options.state_dir)) {
    return not_found("state folder {}: there are no keys in it", options.state_dir);
  }
  StoreOptions store;
  store.state_dir = options.state_dir;
  store.is_server = false;
  store.group_window_us = 0;
  return Store::open(std::move(store));
}

Priority tier_of(const std::string& tier) {
  if (tier == "high") return Priority::HIGH;
  return tier == "low" ? Priority::LOW : Priority::NORMAL;
}

const char* name_of_tier(Priority tier) {
  constexpr std::array<const char*, kPriorities> kNames = {"high", "normal", "low"};
  return kNames[static_cast<size_t>(tier)];
}

void show_key(const KeyOptions& options, const KeyRecord& key, const std::string& secret) {
  const std::string text = key_text(key.id, secret);
  if (options.print_key_only) {
    std::printf("%s\n", text.c_str());
    return;
  }
  std::printf(
      "%s\n\n"
      "This is the key '%s' (tier %s%s). It is shown this once and cannot be read again.\n"
      "Clients send it as 'Authorization: Bearer <key>' or 'x-api-key: <key>'.\n",
      text.c_str(), key.name.c_str(), name_of_tier(key.tier), key.admin ? ", admin" : "");
}

Status add_key(const KeyOptions& options) {
  SKEIN_ASSIGN(const auto store, open_store(options, Missing::kCreate));
  const std::string secret = make_secret();
  const KeyDigest digest = digest_secret(secret);
  KeyRecord key;
  key.id = make_key_id();
  key.name = options.name;
  key.tier = tier_of(options.tier);
  key.models = options.models;
  key.requests_per_minute = options.rpm;
  key.tokens_per_minute = options.tokens_per_minute;
  key.admin = options.admin;
  key.salt = digest.salt;
  key.digest = digest.digest;
  SKEIN_ASSIGN(const KeyRecord added, await<KeyRecord>([&](Done<KeyRecord> done) {
                 store->keys().add(key, std::move(done));
               }));
  show_key(options, added, secret);
  return {};
}

Status rotate_key(const KeyOptions& options) {
  SKEIN_ASSIGN(const auto store, open_store(options, Missing::kRefuse));
  const std::string secret = make_secret();
  SKEIN_ASSIGN(const KeyRecord key, await<KeyRecord>([&](Done<KeyRecord> done) {
                 store->keys().rotate(options.name, digest_secret(secret), std::move(done));
               }));
  show_key(options, key, secret);
  return {};
}

Status revoke_key(const KeyOptions& options) {
  SKEIN_ASSIGN(const auto store, open_store(options, Missing::kRefuse));
  SKEIN_ASSIGN(const KeyRecord key, await<KeyRecord>([&](Done<KeyRecord> done) {
                 store->keys().revoke(options.name, std::move(done));
               }));
  std::printf("The key '%s' (%s) is revoked; a running server refuses it within a second.\n",
              key.name.c_str(), key.id.c_str());
  return {};
}

std::string date_of(int64_t unix_s) {
  const std::time_t time = unix_s;
  std::tm utc = {};
  std::array<char, 32> text;
  gmtime_r(&time, &utc);
  std::strftime(text.data(), text.size(), "%Y-%m-%d", &utc);
  return text.data();
}

std::string limit_of(uint64_t limit) {
  return limit == 0 ? "-" : std::to_string(limit);
}

std::string list_of(const std::vector<std::string>& models) {
  std::string text;
  for (const std::string& model : models) text += (text.empty() ? "" : ",") + model;
  return text.empty() ? "all" : text;
}

std::vector<std::string> row_of(const KeyRecord& key, const UsageCounts& usage) {
  return {key.name,
          key.id,
          name_of_tier(key.tier),
          list_of(key.models),
          limit_of(key.requests_per_minute),
          limit_of(key.tokens_per_minute),
          key.admin ? "yes" : "no",
          date_of(key.created_at_s),
          key.revoked_at_s == 0 ? "active" : "revoked",
          std::to_string(usage.requests),
          std::to_string(usage.prompt_tokens),
          std::to_string(usage.cached_tokens),
          std::to_string(usage.output_tokens)};
}

void print_table(const std::vector<std::vector<std::string>>& rows) {
  std::vector<size_t> widths(rows.front().size());
  for (const auto& row : rows) {
    for (size_t i = 0; i < row.size(); ++i) widths[i] = std::max(widths[i], row[i].size());
  }
  for (const auto& row : rows) {
    std::string line;
    for (size_t i = 0; i < row.size(); ++i) {
      line += row[i];
      if (i + 1 < row.size()) line.append(widths[i] - row[i].size() + 2, ' ');
    }
    std::printf("%s\n", line.c_str());
  }
}

Status list_keys(const KeyOptions& options) {
  using Keys = std::vector<KeyRecord>;
  using Usage = std::vector<OwnerUsage>;
  SKEIN_ASSIGN(const auto store, open_store(options, Missing::kRefuse));
  SKEIN_ASSIGN(const Keys keys,
               await<Keys>([&](Done<Keys> done) { store->keys().list(std::move(done)); }));
  SKEIN_ASSIGN(const Usage usage,
               await<Usage>([&](Done<Usage> done) { store->keys().usage(std::move(done)); }));
  std::map<std::string, UsageCounts> usage_by_owner;
  for (const OwnerUsage& one : usage) usage_by_owner[one.owner] = one.counts;
  std::vector<std::vector<std::string>> rows = {{"NAME", "ID", "TIER", "MODELS", "RPM",
                                                 "TOKENS/MIN", "ADMIN", "CREATED", "STATE",
                                                 "REQUESTS", "PROMPT", "CACHED", "OUTPUT"}};
  for (const KeyRecord& key : keys) {
    if (key.revoked_at_s == 0 || options.all) rows.push_back(row_of(key, usage_by_owner[key.id]));
  }
  print_table(rows);
  return {};
}

CLI::App* add_command(CLI::App& keys, const char* name, const char* description,
                      const std::shared_ptr<KeyOptions>& options, CommandResult& result,
                      Status (*run)(const KeyOptions&)) {
  CLI::App* command = keys.add_subcommand(name, description);
  command->add_option("--state-dir", options->state_dir, "The server's state folder")
      ->capture_default_str();
  command->add_option("--store", options->store,
                      "postgresql://host/database that servers share, instead of a folder");
  command->callback([options, &result, run] { result = run(*options); });
  return command;
}

void add_limits(CLI::App& add, KeyOptions& options) {
  add.add_option("--tier", options.tier,
                 "Class of its requests: high goes before normal, normal before low;\n"
                 "whoever waits moves up, so low is slow but never starved")
      ->check(CLI::IsMember({"high", "normal", "low"}))
      ->capture_default_str();
  add.add_option("--models", options.models, "Models it may use, a,b,...; all unless given")
      ->delimiter(',')
      ->check([](const std::string& model) {
        return is_model_name(model)
                   ? std::string()
                   : std::string("a model's name is empty or has a control character");
      });
  add.add_option("--rpm", options.rpm, "Requests a minute; 0: no limit")
      ->check(CLI::Range(0U, 1'000'000'000U));
  add.add_option("--tokens-per-minute", options.tokens_per_minute,
                 "Prompt and output tokens a minute; 0: no limit")
      ->check(CLI::Range(uint64_t{0}, uint64_t{1'000'000'000}));
  add.add_flag("--admin", options.admin, "May use /admin and sees every key's files and batches");
}

}  // namespace

void add_keys(CLI::App& app, CommandResult& result) {
  auto options = std::make_shared<KeyOptions>();
  CLI::App* keys = app.add_subcommand("keys", "Make, list, rotate and revoke API keys");
  keys->require_subcommand(1);
  keys->footer(
      "A key is sk-<id>-<secret>. The secret is shown once; only a salted hash of it is kept.\n"
      "Without any key a server is open and listens on this machine only. The first key closes it\n"
      "for good: revoking the last one leaves nobody in, not everybody.\n\n"
      "  skein keys add --name chat --tier high\n"
      "  skein keys add --name rag --tier low --models llama,qwen --rpm 60 \\\n"
      "                 --tokens-per-minute 100000\n"
      "  KEY=$(skein keys add --name ci --print-key-only)\n"
      "  skein keys list\n"
      "  skein keys rotate chat      a new secret; files, batches and limits stay\n"
      "  skein keys revoke rag       refused from now on; its batches are cancelled\n\n"
      "A running server takes changes up within a second.\n"
      "Exit status: 0 done, 1 failed (the reason on stderr), 2 wrong usage.");

  CLI::App* add =
      add_command(*keys, "add", "Make a key and show it once", options, result, add_key);
  add->add_option("--name", options->name,
                  "What people call it: 1 to 64 letters, digits and ._-@:+/ (unique)")
      ->required();
  add_limits(*add, *options);

  CLI::App* list = add_command(*keys, "list", "Show keys, limits and usage; never a secret",
                               options, result, list_keys);
  list->add_flag("--all", options->all, "Revoked keys too");

  CLI::App* revoke =
      add_command(*keys, "revoke", "End a key, at once and for good", options, result, revoke_key);
  CLI::App* rotate = add_command(*keys, "rotate", "Give a key a new secret; the old one ends",
                                 options, result, rotate_key);
  for (CLI::App* command : {revoke, rotate}) {
    command->add_option("name,--name", options->name, "The key's name or id")->required();
  }
  for (CLI::App* command : {add, rotate}) {
    command->add_flag("--print-key-only", options->print_key_only,
                      "Print the key and nothing else");
  }
}

}  // namespace skein::apps
