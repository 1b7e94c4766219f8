// Feeds every file of the given folders to a fuzz target, in order: how the ordinary test run
// replays a corpus without libFuzzer. With `--changed N` each is followed by N changed copies of
// it, the same ones in every run.
#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <random>
#include <vector>

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size);

namespace {

using Bytes = std::vector<uint8_t>;

constexpr size_t kMostBytes = 1 << 16;  // changed copies of larger inputs take minutes

size_t below(std::mt19937_64& random, size_t bound) {
  return bound == 0 ? 0 : random() % bound;
}

void change_once(Bytes& bytes, const Bytes& other, std::mt19937_64& random) {
  const size_t at = below(random, bytes.size() + 1);
  const auto here = bytes.begin() + static_cast<std::ptrdiff_t>(at);
  const size_t rest = bytes.size() - at;
  switch (random() % 6) {
    case 0:
      if (rest > 0) *here ^= static_cast<uint8_t>(1u << (random() % 8));
      break;
    case 1:
      if (rest > 0) *here = static_cast<uint8_t>(random());
      break;
    case 2:
      bytes.erase(here,
                  here + static_cast<std::ptrdiff_t>(below(random, std::min<size_t>(rest, 32))));
      break;
    case 3: {  // a part of it twice
      const Bytes part(
          here, here + static_cast<std::ptrdiff_t>(below(random, std::min<size_t>(rest, 64))));
      bytes.insert(here, part.begin(), part.end());
      break;
    }
    case 4: {  // a part of another input
      const size_t from = below(random, other.size());
      const size_t count = below(random, std::min<size_t>(other.size() - from, 64));
      const auto first = other.begin() + static_cast<std::ptrdiff_t>(from);
      bytes.insert(here, first, first + static_cast<std::ptrdiff_t>(count));
      break;
    }
    default:
      bytes.resize(at);
  }
}

Bytes read(const std::filesystem::path& path) {
  std::ifstream in(path, std::ios::binary);
  return Bytes{std::istreambuf_iterator<char>(in), {}};
}

}  // namespace

int main(int argc, char** argv) {
  std::vector<std::filesystem::path> files;
  size_t wanted = 0;
  for (int i = 1; i < argc; ++i) {
    if (std::strcmp(argv[i], "--inputs") == 0 && i + 1 < argc) {
      wanted = std::strtoul(argv[++i], nullptr, 10);
      continue;
    }
    for (const auto& entry : std::filesystem::directory_iterator(argv[i])) {
      if (entry.is_regular_file()) files.push_back(entry.path());
    }
  }
  std::sort(files.begin(), files.end());
  std::vector<Bytes> inputs;
  inputs.reserve(files.size());
  for (const auto& file : files) inputs.push_back(read(file));
  for (const Bytes& input : inputs) LLVMFuzzerTestOneInput(input.data(), input.size());
  std::mt19937_64 random(1);
  size_t fed = inputs.size();
  for (; fed < wanted && !inputs.empty(); ++fed) {
    Bytes copy = inputs[fed % inputs.size()];
    copy.resize(std::min(copy.size(), kMostBytes));
    const Bytes& other = inputs[below(random, inputs.size())];
    for (size_t times = 1 + random() % 4; times > 0; --times) change_once(copy, other, random);
    LLVMFuzzerTestOneInput(copy.data(), copy.size());
  }
  std::printf("fed %zu inputs, %zu of them of the corpus\n", fed, inputs.size());
  return files.empty() ? 1 : 0;
}
