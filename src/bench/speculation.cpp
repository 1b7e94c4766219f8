#include "bench/speculation.h"

#include <algorithm>
#include <ctime>
#include <utility>

#include "bench/result.h"

namespace skein::bench {
namespace {

constexpr std::string_view kDocuments[] = {
    // NOLINTNEXTLINE(bugprone-suspicious-missing-comma): each takes several lines.
    "The mill stands below the second weir. Its wheel is of larch and turns once in nine seconds; "
    "behind it a shaft of oak carries two pairs of stones, of which one has not been used since "
    "the flood. Farmers bring their rye on Tuesdays and their wheat on Fridays, and they pay with "
    "every sixteenth sack. In dry summers the pond holds water for three hours a day. The miller "
    "then sleeps at noon and grinds at night, when the brewery upstream is not drawing any. "
    "Visitors "
    "may see the wheel from the bridge, but the floor with the stones is closed to them, because "
    "the trapdoor in it has no rail.",
    "Members may borrow up to six items at a time. A book is lent for twenty-eight days, a film "
    "for "
    "seven, and a map for three. Items can be renewed twice, in person, by letter or on the "
    "telephone, unless another member has asked for them. The fine for a late item is ten cents a "
    "day and is never more than the price of the item. Children under twelve need the signature "
    "of a parent or guardian. Lost items must be paid for; the price is that of a new copy, plus "
    "two euros for the label and the cover. The committee may make exceptions, which are written "
    "down and read out once a year.",
    "On the third day the wind turned north-west and freshened. We took in the topsail at four and "
    "the jib at six, and at eight the mate had lines rigged along the deck. Nobody slept. Toward "
    "midnight the cook brought coffee in a bucket with a lid, and every man drank from the ladle "
    "in "
    "turn. At two the lamp on the bow went out and could not be lit again. We steered by the sound "
    "of the bell buoy until the sky grew pale, and then we saw the lighthouse, two miles to port, "
    "with its door open and a woman in a red coat who waved a towel.",
};

constexpr std::string_view kSources[] = {
    "class Basket:\n"
    "    def __init__(self, owner):\n"
    "        self.owner = owner\n"
    "        self.items = []\n"
    "\n"
    "    def add(self, name, price, count=1):\n"
    "        if price < 0:\n"
    "            raise ValueError(\"price must not be negative\")\n"
    "        self.items.append((name, price, count))\n"
    "\n"
    "    def remove(self, name):\n"
    "        self.items = [item for item in self.items if item[0] != name]\n"
    "\n"
    "    def total(self):\n"
    "        return sum(price * count for _, price, count in self.items)\n"
    "\n"
    "    def receipt(self):\n"
    "        lines = [f\"Receipt for {self.owner}\"]\n"
    "        for name, price, count in self.items:\n"
    "            lines.append(f\"{count} x {name} at {price:.2f}\")\n"
    "        lines.append(f\"Total: {self.total():.2f}\")\n"
    "        return \"\\n\".join(lines)\n",
    "#include <stdio.h>\n"
    "#include <stdlib.h>\n"
    "\n"
    "struct Node {\n"
    "  int value;\n"
    "  struct Node* next;\n"
    "};\n"
    "\n"
    "struct Node* push(struct Node* head, int value) {\n"
    "  struct Node* node = malloc(sizeof(struct Node));\n"
    "  if (node == NULL) return head;\n"
    "  node->value = value;\n"
    "  node->next = head;\n"
    "  return node;\n"
    "}\n"
    "\n"
    "int sum(const struct Node* head) {\n"
    "  int total = 0;\n"
    "  for (const struct Node* node = head; node != NULL; node = node->next) {\n"
    "    total += node->value;\n"
    "  }\n"
    "  return total;\n"
    "}\n",
    "import csv\n"
    "\n"
    "def read_rows(path):\n"
    "    with open(path, newline=\"\") as file:\n"
    "        return list(csv.DictReader(file))\n"
    "\n"
    "def average(rows, column):\n"
    "    values = [float(row[column]) for row in rows if row[column]]\n"
    "    return sum(values) / len(values) if values else 0.0\n"
    "\n"
    "def by_city(rows):\n"
    "    cities = {}\n"
    "    for row in rows:\n"
    "        cities.setdefault(row[\"city\"], []).append(row)\n"
    "    return cities\n"
    "\n"
    "def report(path, column):\n"
    "    for city, rows in sorted(by_city(read_rows(path)).items()):\n"
    "        print(f\"{city}: {average(rows, column):.1f}\")\n",
};

struct Edit {
  std::string_view wish;
  std::string_view beginning;
};
constexpr Edit kEdits[] = {
    {"rename the method total to amount", "```python\nclass Basket:\n    def __init__(self"},
    {"rename the struct Node to Link", "```c\n#include <stdio.h>\n"},
    {"rename the function average to mean", "```python\nimport csv\n"},
};

constexpr std::string_view kQuestions[] = {
    "Why do leaves change their colour in autumn?",
    "I have two free days in a city that I do not know. How should I plan them?",
    "Explain the difference between weather and climate to a friend.",
    "Write a short story about a lighthouse keeper who finds a letter.",
};

// What one run came to.
struct OneRun {
  std::vector<std::vector<TokenId>> answers;
  uint64_t tokens = 0;
  double tokens_per_second = 0;
  double cpu_seconds = 0;
};

// On a machine that others use, too, this says more than the time that passes; with one thread, for
// threads that wait for each other spin.
double cpu_now() {
  timespec now{};
  clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &now);
  return static_cast<double>(now.tv_sec) + static_cast<double>(now.tv_nsec) * 1e-9;
}

class Rounds {
 public:
  Rounds(InferenceService& service, std::span<const SpeculationRequest> requests,
         uint32_t concurrency, const Clock& clock)
      : service_(service), requests_(requests), concurrency_(concurrency), clock_(clock) {}

  Result<OneRun> run(Speculation how) {
    OneRun out;
    TimeUs decode_us = 0;
    double decode_cpu = 0;
    uint64_t decoded = 0;
    const TimeUs began = clock_.now();
    const double cpu_began = cpu_now();
    const size_t all = std::max<size_t>(requests_.size(), concurrency_);
    for (size_t first = 0; first < all; first += concurrency_) {
      std::vector<RequestHandle> handles;
      for (size_t i = first; i < std::min<size_t>(first + concurrency_, all); ++i) {
        SKEIN_ASSIGN(RequestHandle handle, service_.submit(request_of(i, how), {}));
        handles.push_back(std::move(handle));
      }
      for (const RequestHandle& handle : handles) {
        double first_token = 0;
        SKEIN_ASSIGN(const GenerationEnd end,
                     read(handle, out.answers.emplace_back(), first_token));
        decode_cpu += cpu_now() - first_token;
        out.tokens += out.answers.back().size();
        decode_us += end.decode_us;
        decoded += std::max<size_t>(out.answers.back().size(), 1) - 1;
      }
    }
    out.cpu_seconds = concurrency_ == 1 ? decode_cpu : cpu_now() - cpu_began;
    out.tokens_per_second = concurrency_ == 1
                                ? per_second(static_cast<double>(decoded), decode_us)
                                : per_second(static_cast<double>(out.tokens), clock_.now() - began);
    return out;
  }

 private:
  GenerationRequest request_of(size_t number, Speculation how) {
    const SpeculationRequest& wanted = requests_[number % requests_.size()];
    GenerationRequest request;
    request.prompt = wanted.prompt;
    request.max_tokens = wanted.max_tokens;
    request.sampling = wanted.sampling;
    request.sampling.seed = number;
    request.tenant = ++tenants_;
    request.speculation = how;
    return request;
  }

  // `first_token`: the CPU time by then.
  static Result<GenerationEnd> read(const RequestHandle& handle, std::vector<TokenId>& answer,
                                    double& first_token) {
    StreamChunk chunk;
    while (handle.stream().wait(chunk)) {
      if (answer.empty()) first_token = cpu_now();
      answer.insert(answer.end(), chunk.tokens.begin(), chunk.tokens.end());
      if (!chunk.end) continue;
      if (!chunk.end->status.ok()) return chunk.end->status;
      return std::move(*chunk.end);
    }
    return internal_error("a stream ended without an end");
  }

  InferenceService& service_;
  const std::span<const SpeculationRequest> requests_;
  const uint32_t concurrency_;
  const Clock& clock_;
  uint64_t tenants_ = 0;
};

double median_of(const std::vector<double>& values) {
  return values[median_index(values)];
}

}  // namespace

std::vector<SpeculationWorkload> speculation_workloads() {
  SpeculationWorkload chat{"chat", 0.7F, {}};
  for (const std::string_view question : kQuestions)
    chat.items.push_back({std::string(question), {}});
  SpeculationWorkload edit{"edit", 0, {}};
  for (size_t i = 0; i < std::size(kSources); ++i) {
    edit.items.push_back({"In this file, " + std::string(kEdits[i].wish) +
                              ". Change nothing else, and print the whole file.\n\n" +
                              std::string(kSources[i]),
                          std::string(kEdits[i].beginning)});
  }
  SpeculationWorkload quote{"quote", 0, {}};
  for (const std::string_view document : kDocuments) {
    quote.items.push_back({"Quote this text word for word, from its beginning to its end.\n\n" +
                               std::string(document),
                           std::string(document.substr(0, document.find(' ', 20)))});
  }
  return {std::move(chat), std::move(edit), std::move(quote)};
}

Result<SpeculationResult> measure_speculation(InferenceService& service,
                                              std::span<const SpeculationRequest> requests,
                                              uint32_t concurrency, uint32_t rounds,
                                              Speculation how, const Clock& clock) {
  Rounds runs(service, requests, concurrency, clock);
  SKEIN_TRY(runs.run(Speculation::kOff).status());  // caches and the cost model warm up
  SpeculationResult result;
  std::vector<double> off;
  std::vector<double> on;
  std::vector<double> ratios;
  std::vector<double> cpu_ratios;
  for (uint32_t round = 0; round < rounds; ++round) {
    SKEIN_ASSIGN(const OneRun without, runs.run(Speculation::kOff));
    const SchedulerStats before = service.snapshot().scheduler;
    SKEIN_ASSIGN(const OneRun with, runs.run(how));
    const SchedulerStats after = service.snapshot().scheduler;
    if (with.answers != without.answers) {
      return internal_error("answers with speculation differ from those without");
    }
    result.tokens = with.tokens;
    result.drafted_tokens = after.drafted_tokens - before.drafted_tokens;
    result.accepted_tokens = after.accepted_tokens - before.accepted_tokens;
    off.push_back(without.tokens_per_second);
    on.push_back(with.tokens_per_second);
    ratios.push_back(on.back() / std::max(off.back(), 1e-9));
    cpu_ratios.push_back(without.cpu_seconds / std::max(with.cpu_seconds, 1e-9));
  }
  result.off_tokens_per_second = median_of(off);
  result.on_tokens_per_second = median_of(on);
  result.ratio = median_of(ratios);
  result.cpu_ratio = median_of(cpu_ratios);
  return result;
}

}  // namespace skein::bench
