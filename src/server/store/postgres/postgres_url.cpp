// The URL of a store: what may be in it, and what a sandbox must leave for it.
#include <libpq-fe.h>

#include <algorithm>
#include <charconv>
#include <cstdint>
#include <memory>
#include <utility>

#include "server/store/postgres/postgres_database.h"

namespace skein {
namespace {

struct FreeOptions {
  void operator()(PQconninfoOption* options) const { PQconninfoFree(options); }
};
using Conninfo = std::unique_ptr<PQconninfoOption, FreeOptions>;

// libpq quotes what it cannot read, with a password that may be in it.
Result<Conninfo> parse_url(const std::string& url) {
  char* error = nullptr;
  Conninfo options(PQconninfoParse(url.c_str(), &error));
  std::string why = error == nullptr ? "no memory" : error;
  PQfreemem(error);
  if (options != nullptr) return options;
  why.resize(std::min({why.size(), why.find('\n'), why.find(": \"")}));
  return invalid_argument("store: the URL cannot be read: {}", why);
}

std::string value_of(const PQconninfoOption* options, std::string_view keyword) {
  for (; options->keyword != nullptr; ++options) {
    if (keyword == options->keyword && options->val != nullptr) return options->val;
  }
  return {};
}

std::vector<std::string> words_of(const std::string& text) {
  std::vector<std::string> words(1);
  for (const char c : text) {
    if (c == ',') {
      words.emplace_back();
    } else {
      words.back() += c;
    }
  }
  return words;
}

// 0: it is none. No word: the usual one.
uint16_t port_in(std::string_view word) {
  constexpr uint16_t kUsual = 5432;
  if (word.empty()) return kUsual;
  uint16_t port = 0;
  const auto [end, error] = std::from_chars(word.data(), word.data() + word.size(), port);
  return error == std::errc() && end == word.data() + word.size() ? port : 0;
}

}  // namespace

// Others on the machine can read a command line.
Status check_postgres_url(const std::string& url) {
  if (!url.starts_with("postgresql://") && !url.starts_with("postgres://")) {
    return invalid_argument("store: it must be a URL as in postgresql://host/database");
  }
  SKEIN_ASSIGN(const Conninfo options, parse_url(url));
  for (const char* secret : {"password", "sslpassword"}) {
    if (value_of(options.get(), secret).empty()) continue;
    return invalid_argument(
        "store: the URL has a {} in it, which others on this machine can read; put it into "
        "~/.pgpass, a file that PGPASSFILE names, or PGPASSWORD, and a key that needs none into "
        "sslkey",
        secret);
  }
  // A password with a slash in it ends the name of a host early and stands where the port should,
  // which libpq would quote.
  for (const std::string& word : words_of(value_of(options.get(), "port"))) {
    if (port_in(word) == 0) {
      return invalid_argument("store: a port in the URL is no number from 1 to {}", UINT16_MAX);
    }
  }
  return {};
}

Result<StoreAccess> postgres_access(const std::string& url) {
  SKEIN_TRY(check_postgres_url(url));
  SKEIN_ASSIGN(const Conninfo options, parse_url(url));
  StoreAccess access;
  const std::string ports = value_of(options.get(), "port");
  for (const std::string& word : words_of(ports)) {
    access.ports.push_back(port_in(word));
  }
  for (const char* file : {"sslrootcert", "sslcert", "sslkey", "sslcrl", "passfile"}) {
    if (std::string path = value_of(options.get(), file); path.starts_with('/')) {
      access.files.push_back(std::move(path));
    }
  }
  return access;
}

}  // namespace skein
