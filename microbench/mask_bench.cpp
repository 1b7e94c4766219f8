// Forms over real schemas: what they take, how long a form takes to its first mask, and a mask over
// a large vocabulary, on one thread.
//
//   skein_mask_bench FOLDER VOCABULARY [--every N] [--fresh 1] [--masks FILE] [--slow US]
//
// FOLDER has files {"schema", "tests": [{"valid", "data"}]}, VOCABULARY a byte of length and the
// bytes of every token. Schemas are strict and objects open; a text is cut by the longest match,
// and the mask is made before each of its tokens. Texts of a schema share a grammar, as requests
// do;
// --fresh compiles it for each of them. --masks writes a digest of every schema's masks, so that
// two builds can be compared; --slow prints where a mask takes longer. Times are of the thread's
// CPU, so that a busy machine does not count.
#include <algorithm>
#include <cstdio>
#include <ctime>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <nlohmann/json.hpp>
#include <string>
#include <unordered_map>
#include <vector>

#include "grammar/compiled_grammar.h"
#include "grammar/json_schema.h"

namespace skein::grammar {
namespace {

using Json = nlohmann::ordered_json;

double now_us() {
  timespec now{};
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
  return static_cast<double>(now.tv_sec) * 1e6 + static_cast<double>(now.tv_nsec) * 1e-3;
}

std::string file_text(const std::filesystem::path& path) {
  std::ifstream in(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(in), {}};
}

// As models write JSON: a space behind commas and colons.
void write_spaced(const Json& json, std::string& out) {
  if (!json.is_structured()) {
    out += json.dump();
    return;
  }
  out += json.is_object() ? '{' : '[';
  bool first = true;
  for (auto it = json.begin(); it != json.end(); ++it) {
    if (!first) out += ", ";
    first = false;
    if (json.is_object()) out += Json(it.key()).dump() + ": ";
    write_spaced(*it, out);
  }
  out += json.is_object() ? '}' : ']';
}

class Vocabulary {
 public:
  explicit Vocabulary(const std::string& bytes) {
    std::vector<std::string> tokens;
    for (size_t i = 0; i < bytes.size(); i += 1 + static_cast<uint8_t>(bytes[i])) {
      tokens.push_back(bytes.substr(i + 1, static_cast<uint8_t>(bytes[i])));
      ids_.emplace(tokens.back(), static_cast<TokenId>(tokens.size() - 1));
      longest_ = std::max(longest_, tokens.back().size());
    }
    auto made = TokenTrie::make(std::move(tokens));
    if (made.ok()) trie_ = *made;
  }

  const std::shared_ptr<const TokenTrie>& trie() const { return trie_; }

  std::vector<TokenId> cut(const std::string& text) const {
    std::vector<TokenId> ids;
    for (size_t at = 0; at < text.size();) {
      size_t length = std::min(longest_, text.size() - at);
      auto found = ids_.find(text.substr(at, length));
      while (found == ids_.end()) found = ids_.find(text.substr(at, --length));
      ids.push_back(found->second);
      at += length;
    }
    return ids;
  }

 private:
  std::shared_ptr<const TokenTrie> trie_;
  std::unordered_map<std::string, TokenId> ids_;
  size_t longest_ = 0;
};

struct Figures {
  std::vector<double> compile_us, mask_us, accept_us;
  size_t schemas = 0, right = 0, refused = 0, taken_wrongly = 0, refused_wrongly = 0, failed = 0;
  uint64_t digest = 0;
  double slow_us = 1e9;  // masks that take longer are printed
  std::string file;      // that is read
};

// Whether the text is taken; nothing is said where the mask needs more work than it may.
bool takes(const std::shared_ptr<CompiledGrammar>& grammar, const std::vector<TokenId>& tokens,
           Figures& figures) {
  Matcher matcher(grammar);
  for (const TokenId token : tokens) {
    const double begin = now_us();
    const TokenMask* mask = matcher.mask();
    const double made = now_us();
    figures.mask_us.push_back(made - begin);
    if (mask == nullptr) return false;
    if (made - begin > figures.slow_us) {
      const std::string& text = matcher.text();
      std::printf("%.0f us in %s behind %s\n", made - begin, figures.file.c_str(),
                  text.substr(text.size() - std::min<size_t>(text.size(), 60)).c_str());
    }
    for (const uint64_t word : mask->words()) {
      figures.digest = (figures.digest ^ word) * 0x9e3779b97f4a7c15;
      figures.digest ^= figures.digest >> 29;
    }
    const double before = now_us();
    const bool taken = matcher.advance(token);
    figures.accept_us.push_back(now_us() - before);
    if (!taken) return false;
  }
  return matcher.may_end();
}

std::shared_ptr<CompiledGrammar> compiled(const std::string& schema, const Vocabulary& vocabulary) {
  auto rules = json_schema_rules(schema, {.strict = true, .open = true});
  if (!rules.ok()) return nullptr;
  auto grammar = compile(std::move(rules->rules), vocabulary.trie());
  return grammar.ok() ? *grammar : nullptr;
}

void run_file(const std::filesystem::path& path, const Vocabulary& vocabulary, bool fresh,
              Figures& figures) {
  const Json file = Json::parse(file_text(path), nullptr, false);
  if (!file.is_object()) return;
  ++figures.schemas;
  figures.file = path.filename().string();
  const std::string schema = file["schema"].dump();
  const double begin = now_us();
  std::shared_ptr<CompiledGrammar> grammar = compiled(schema, vocabulary);
  const bool made = grammar != nullptr && Matcher(grammar).mask() != nullptr;
  figures.compile_us.push_back(now_us() - begin);
  if (!made) {
    ++(grammar == nullptr ? figures.refused : figures.failed);
    return;
  }
  bool wrong = false;
  for (const Json& test : file.value("tests", Json::array())) {
    std::string text;
    write_spaced(test["data"], text);
    const bool valid = test["valid"].get<bool>();
    if (fresh) grammar = compiled(schema, vocabulary);
    const bool taken = takes(grammar, vocabulary.cut(text), figures);
    if (taken == valid) continue;
    wrong = true;
    ++(taken ? figures.taken_wrongly : figures.refused_wrongly);
    std::printf("%s: %s\n", taken ? "taken wrongly" : "refused wrongly", path.filename().c_str());
  }
  figures.right += !wrong;
}

void print_times(const char* name, std::vector<double> us) {
  if (us.empty()) return;
  std::sort(us.begin(), us.end());
  double sum = 0;
  for (const double v : us) sum += v;
  const auto at = [&](double q) {
    return us[std::min(us.size() - 1, static_cast<size_t>(q * static_cast<double>(us.size())))];
  };
  std::printf("%s us: mean %.1f p50 %.1f p90 %.1f p99 %.1f p99.9 %.1f max %.1f of %zu\n", name,
              sum / static_cast<double>(us.size()), at(0.5), at(0.9), at(0.99), at(0.999),
              us.back(), us.size());
}

int run(int argc, char** argv) {
  if (argc < 3) {
    std::fprintf(
        stderr,
        "skein_mask_bench FOLDER VOCABULARY [--every N] [--fresh 1] [--masks FILE] [--slow US]\n");
    return 2;
  }
  Figures figures;
  size_t every = 1;
  bool fresh = false;
  std::ofstream masks;
  for (int i = 3; i + 1 < argc; i += 2) {
    if (std::string(argv[i]) == "--every") every = std::max(1, std::atoi(argv[i + 1]));
    if (std::string(argv[i]) == "--fresh") fresh = std::string(argv[i + 1]) == "1";
    if (std::string(argv[i]) == "--slow") figures.slow_us = std::atof(argv[i + 1]);
    if (std::string(argv[i]) == "--masks") masks.open(argv[i + 1]);
  }
  const Vocabulary vocabulary(file_text(argv[2]));
  std::vector<std::filesystem::path> paths;
  for (const auto& entry : std::filesystem::directory_iterator(argv[1])) {
    paths.push_back(entry.path());
  }
  std::sort(paths.begin(), paths.end());
  for (size_t i = 0; i < paths.size(); i += every) {
    figures.digest = 0;
    run_file(paths[i], vocabulary, fresh, figures);
    if (masks.is_open()) {
      masks << paths[i].filename().string() << ' ' << figures.digest << '\n';
    }
  }
  std::printf(
      "schemas %zu right %zu refused %zu failed %zu taken wrongly %zu refused wrongly %zu\n",
      figures.schemas, figures.right, figures.refused, figures.failed, figures.taken_wrongly,
      figures.refused_wrongly);
  print_times("compile", figures.compile_us);
  print_times("mask", figures.mask_us);
  print_times("accept", figures.accept_us);
  return 0;
}

}  // namespace
}  // namespace skein::grammar

int main(int argc, char** argv) {
  return skein::grammar::run(argc, argv);
}
