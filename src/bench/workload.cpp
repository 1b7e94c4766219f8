#include "bench/workload.h"

#include <algorithm>
#include <cmath>
#include <fmt/format.h>

#include "base/rng.h"

namespace skein::bench {
namespace {

// Paragraphs that long prompts quote; any text will do, as long as it is one.
constexpr std::string_view kParagraphs[] = {
    "Geese that fly in a long V save strength, because each bird rides on the air that the one in "
    "front has lifted. The leader works hardest and changes places when it tires, so that the "
    "flock as a whole covers a distance that none of its birds could fly alone.",
    "The harbour was built in four stages over ninety years. The first quay was of oak and lasted "
    "until the great storm; the second, of granite, still carries the railway. Every stage was "
    "paid for by a toll on salt, which the fishermen disputed each time, and each time they lost.",
    "A library lends what it owns and owns what it can afford. When demand grows, more copies of "
    "the same book help less than one might think: most readers come in the evening, all of them "
    "at once, and the shelves stand full all morning. A queue with fair rules does more good.",
    "Measure the water twice before you mix the dough, for flour forgives much and water nothing. "
    "Let it rest where it is warm, fold it four times an hour, and bake it hot on a stone. The "
    "crust should sing when the loaf comes out, and the crumb should cool before anybody cuts it.",
    "In the second week the expedition reached the dry lake and turned north. They kept a log of "
    "wind, temperature and distance, three times a day, and of every animal they saw, which were "
    "few. On the ninth of May the compass failed, and from then on they travelled by the stars.",
};
constexpr size_t kParagraphCount = std::size(kParagraphs);

// Twenty beginnings; the later ones quote ever more.
struct BuiltIn {
  std::string_view question;
  uint32_t paragraphs;
};
constexpr BuiltIn kPrompts[kBuiltInPrompts] = {
    {"Hello!", 0},
    {"Why is the sky blue?", 0},
    {"The capital of France is", 0},
    {"Name three rivers of Europe and the seas they reach.", 0},
    {"Write a haiku about rain on a tin roof.", 0},
    {"Explain to a child of six how a rainbow comes about, in a few short sentences.", 0},
    {"def fibonacci(n):\n    \"\"\"The n-th number, by iteration.\"\"\"\n", 0},
    {"Translate into French: the train to the coast leaves at nine and arrives before noon.", 0},
    {"What is the difference between a process and a thread? When would you use which?", 1},
    {"Give this text a title and two subtitles.", 1},
    {"Rewrite the following as a letter to a friend who was not there.", 1},
    {"Which of these statements are opinions, and which are facts?", 1},
    {"Summarise the passage below in one sentence, then in three words.", 2},
    {"Find every number in the text and say what it counts.", 2},
    {"Continue the story in the same voice, with one new character.", 2},
    {"List the nouns of the following paragraphs in alphabetical order.", 3},
    {"Answer as a careful teacher: what can be learned from these lines?", 3},
    {"Compare the first paragraph with the last one. What do they share?", 4},
    {"Turn all of this into a dialogue between two people who disagree.", 5},
    {"Write a short review of the collection below, and recommend it to someone.", 6},
};

constexpr std::string_view kSharedPrefix =
    "You are the assistant of a small library. Answer briefly and kindly, in the language of the "
    "question. Say what you know and say when you do not know; never invent a title, a name or a "
    "date. Quote at most one sentence from a book, with its page. Opening hours are from nine to "
    "six on weekdays and from ten to two on Saturdays; on Sundays the library is closed. A book is "
    "lent for four weeks and can be renewed twice unless somebody waits for it. Fines are ten "
    "cents a day and never more than the price of the book. Children under twelve need the "
    "signature of a parent. Laptops may be used on the second floor, food and drink nowhere. If "
    "somebody asks for a recommendation, ask first what they read last and whether they liked it, "
    "then name two books, one that is close to it and one that is not. If somebody is angry, stay "
    "calm, say that you are sorry for the trouble, and offer to call a librarian.\n\n";

// Steps through the twenty so that any few neighbours are of different lengths.
constexpr uint32_t kStride = 7;

std::string built_in_text(uint32_t number) {
  const uint32_t which = number * kStride % kBuiltInPrompts, round = number / kBuiltInPrompts;
  const BuiltIn& prompt = kPrompts[which];
  std::string text = round == 0 ? std::string() : fmt::format("Number {}. ", number + 1);
  text += prompt.question;
  for (uint32_t i = 0; i < prompt.paragraphs; ++i) {
    text += "\n\n";
    text += kParagraphs[(which + i) % kParagraphCount];
  }
  return text;
}

}  // namespace

std::vector<WorkItem> built_in_workload(uint32_t count, uint32_t max_tokens, bool shared_prefix) {
  std::vector<WorkItem> items(count);
  for (uint32_t i = 0; i < count; ++i) {
    items[i].text = shared_prefix ? std::string(kSharedPrefix) : std::string();
    items[i].text += built_in_text(i);
    items[i].max_tokens = max_tokens;
  }
  return items;
}

std::vector<WorkItem> made_up_workload(uint32_t first, uint32_t count, uint32_t prompt_tokens,
                                       uint32_t max_tokens) {
  std::vector<WorkItem> items(count);
  for (uint32_t i = 0; i < count; ++i) {
    items[i].number = uint64_t{first} + i;
    items[i].prompt_tokens = prompt_tokens;
    items[i].max_tokens = max_tokens;
  }
  return items;
}

void set_poisson_arrivals(std::vector<WorkItem>& items, double rate, uint64_t seed) {
  Rng rng(seed);
  double at_us = 0;
  for (WorkItem& item : items) {
    // In (0, 1], so that the logarithm is finite.
    const double uniform = (static_cast<double>(rng.next() >> 11) + 1) * 0x1p-53;
    at_us += -std::log(uniform) / rate * kUsPerSecond;
    item.arrival_us = static_cast<TimeUs>(std::llround(at_us));
  }
}

std::vector<TokenId> made_up_tokens(const WorkItem& item, uint32_t vocab) {
  if (!item.tokens.empty()) return item.tokens;
  const size_t count =
      item.text.empty() ? item.prompt_tokens : std::max<size_t>(1, item.text.size() / 4);
  uint64_t seed = 0;
  if (item.text.empty()) {
    seed = random_at(item.number, item.prompt_tokens, static_cast<uint64_t>(item.arrival_us));
  }
  std::vector<TokenId> tokens(count);
  for (size_t i = 0; i < count; ++i) {
    // A function of all the text so far: equal beginnings give equal ids.
    for (size_t c = i * 4; c < std::min(item.text.size(), i * 4 + 4); ++c) {
      seed = random_at(seed, static_cast<unsigned char>(item.text[c]));
    }
    tokens[i] = static_cast<TokenId>(random_at(seed, i) % vocab);
  }
  return tokens;
}

Result<Priority> priority_of_name(std::string_view name) {
  for (uint32_t i = 0; i < kPriorities; ++i) {
    if (name == name_of(static_cast<Priority>(i))) return static_cast<Priority>(i);
  }
  return invalid_argument("class '{}' is none of high, normal and low", name);
}

}  // namespace skein::bench
