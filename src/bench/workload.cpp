#include "bench/workload.h"

#include <algorithm>
#include <cmath>
#include <fmt/format.h>
#include <nlohmann/json.hpp>
#include <optional>
#include <utility>

#include "base/rng.h"

namespace skein::bench {
namespace {

// Paragraphs that long prompts quote; any text will do, as long as it is one.
constexpr std::string_view kParagraphs[] = {
    // NOLINTNEXTLINE(bugprone-suspicious-missing-comma): each takes several lines.
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

using TraceJson = nlohmann::json;

constexpr uint32_t kMaxTraceTokens = 1U << 24;

// Days since 1970-01-01 of a date of the Gregorian calendar.
int64_t days_of(int64_t year, int64_t month, int64_t day) {
  year -= month <= 2 ? 1 : 0;
  const int64_t era = year / 400, year_of_era = year - era * 400;
  const int64_t day_of_year = (153 * (month + (month > 2 ? -3 : 9)) + 2) / 5 + day - 1;
  return era * 146'097 + year_of_era * 365 + year_of_era / 4 - year_of_era / 100 + day_of_year -
         719'468;
}

// The time at the beginning of a log line, "2026-01-02T03:04:05.678Z"; nullopt for anything else.
std::optional<TimeUs> log_time(std::string_view line) {
  int year = 0, month = 0, day = 0, hour = 0, minute = 0, second = 0, milli = 0;
  if (std::sscanf(std::string(line.substr(0, 24)).c_str(), "%4d-%2d-%2dT%2d:%2d:%2d.%3dZ", &year,
                  &month, &day, &hour, &minute, &second, &milli) != 7) {
    return std::nullopt;
  }
  const int64_t seconds = ((days_of(year, month, day) * 24 + hour) * 60 + minute) * 60 + second;
  return seconds * kUsPerSecond + milli * kUsPerMs;
}

Result<uint32_t> trace_count(const TraceJson& object, const char* key, uint32_t fallback) {
  const auto found = object.find(key);
  if (found == object.end()) return fallback;
  if (!found->is_number_integer() || found->get<int64_t>() < 1 ||
      found->get<int64_t>() > kMaxTraceTokens) {
    return invalid_argument("{} is {}, not a number between 1 and {}", key, found->dump(),
                            kMaxTraceTokens);
  }
  return static_cast<uint32_t>(found->get<int64_t>());
}

Result<double> trace_time_ms(const TraceJson& object, const char* key) {
  const auto found = object.find(key);
  if (found == object.end()) return 0.0;
  if (!found->is_number() || found->get<double>() < 0 || found->get<double>() > 1e12) {
    return invalid_argument("{} is {}, not a time in milliseconds", key, found->dump());
  }
  return found->get<double>();
}

// A prompt of Mooncake's traces: its length, and the contents of its stretches as numbers.
Status read_pieces(const TraceJson& object, WorkItem& item) {
  SKEIN_ASSIGN(item.prompt_tokens, trace_count(object, "input_length", 1));
  const auto ids = object.find("hash_ids");
  if (ids == object.end()) return {};
  if (!ids->is_array()) return invalid_argument("hash_ids is {}, not a list", ids->dump());
  for (const TraceJson& id : *ids) {
    if (!id.is_number_unsigned()) return invalid_argument("hash_ids holds {}", id.dump());
    item.pieces.push_back(id.get<uint64_t>());
  }
  const size_t wanted = (size_t{item.prompt_tokens} + kPieceTokens - 1) / kPieceTokens;
  if (item.pieces.size() < wanted) {
    return invalid_argument("hash_ids has {} pieces of {} tokens, and input_length {} needs {}",
                            item.pieces.size(), kPieceTokens, item.prompt_tokens, wanted);
  }
  return {};
}

Status read_prompt(const TraceJson& object, WorkItem& item) {
  const auto text = object.find("prompt");
  const auto tokens = object.find("prompt_tokens");
  if (text != object.end()) {
    if (!text->is_string() || text->get_ref<const std::string&>().empty()) {
      return invalid_argument("prompt is not a text");
    }
    item.text = text->get<std::string>();
    return {};
  }
  if (object.contains("input_length")) return read_pieces(object, item);
  if (tokens == object.end()) return invalid_argument("neither prompt nor prompt_tokens is there");
  if (!tokens->is_array()) {
    SKEIN_ASSIGN(item.prompt_tokens, trace_count(object, "prompt_tokens", 1));
    return {};
  }
  for (const TraceJson& id : *tokens) {
    if (!id.is_number_integer() || id.get<int64_t>() < 0 || id.get<int64_t>() > INT32_MAX) {
      return invalid_argument("prompt_tokens holds {}, not an id", id.dump());
    }
    item.tokens.push_back(static_cast<TokenId>(id.get<int64_t>()));
  }
  if (item.tokens.empty()) return invalid_argument("prompt_tokens is empty");
  return {};
}

Result<WorkItem> read_item(const TraceJson& object, uint32_t max_tokens) {
  if (!object.is_object()) return invalid_argument("not a JSON object");
  WorkItem item;
  SKEIN_TRY(read_prompt(object, item));
  SKEIN_ASSIGN(const uint32_t length, trace_count(object, "output_length", max_tokens));
  SKEIN_ASSIGN(const uint32_t output, trace_count(object, "output_tokens", length));
  SKEIN_ASSIGN(item.max_tokens, trace_count(object, "max_tokens", output));
  const char* time = object.contains("timestamp") ? "timestamp" : "arrival_ms";
  SKEIN_ASSIGN(const double arrival, trace_time_ms(object, time));
  item.arrival_us = static_cast<TimeUs>(arrival * kUsPerMs);
  if (const auto name = object.find("class"); name != object.end()) {
    if (!name->is_string()) return invalid_argument("class is {}, not a name", name->dump());
    SKEIN_ASSIGN(item.priority, priority_of_name(name->get_ref<const std::string&>()));
  }
  return item;
}

// A line of a log: nullopt where it is not about a request that got tokens.
Result<std::optional<WorkItem>> read_log_line(std::string_view line, TimeUs ended,
                                              uint32_t max_tokens) {
  const size_t brace = line.find(" {\"");
  if (brace == std::string_view::npos) return std::optional<WorkItem>();
  const TraceJson object = TraceJson::parse(line.substr(brace + 1), nullptr, false);
  if (object.is_discarded()) return std::optional<WorkItem>();
  const auto output = object.find("output_tokens");
  if (output == object.end() || *output == 0) return std::optional<WorkItem>();
  SKEIN_ASSIGN(WorkItem item, read_item(object, max_tokens));
  SKEIN_ASSIGN(const double total, trace_time_ms(object, "total_ms"));
  item.arrival_us = ended - static_cast<TimeUs>(total * kUsPerMs);
  return std::optional<WorkItem>(std::move(item));
}

// A line of a trace: nullopt where there is nothing on it. A log's other lines are none of ours.
Result<std::optional<WorkItem>> read_line(std::string_view line, bool is_log, uint32_t max_tokens) {
  if (line.find_first_not_of(" \t\r") == std::string_view::npos) return std::optional<WorkItem>();
  if (is_log) {
    const std::optional<TimeUs> time = log_time(line);
    return time ? read_log_line(line, *time, max_tokens) : std::optional<WorkItem>();
  }
  const TraceJson object = TraceJson::parse(line, nullptr, false);
  if (object.is_discarded()) return invalid_argument("not a JSON object");
  SKEIN_ASSIGN(WorkItem item, read_item(object, max_tokens));
  return std::optional<WorkItem>(std::move(item));
}

std::vector<std::string_view> lines_of(std::string_view text) {
  std::vector<std::string_view> lines;
  while (!text.empty()) {
    const size_t end = std::min(text.find('\n'), text.size());
    lines.push_back(text.substr(0, end));
    text.remove_prefix(std::min(end + 1, text.size()));
  }
  return lines;
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
  for (size_t i = 0; i < count && !item.pieces.empty(); ++i) {
    const uint64_t piece = item.pieces[i / kPieceTokens];
    tokens[i] = static_cast<TokenId>(random_at(piece, i % kPieceTokens) % vocab);
  }
  for (size_t i = 0; i < count && item.pieces.empty(); ++i) {
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

// Traces: what parse_trace of workload.h takes.
Result<std::vector<WorkItem>> parse_trace(std::string_view text, uint32_t max_tokens) {
  const std::vector<std::string_view> lines = lines_of(text);
  const bool is_log = std::any_of(lines.begin(), lines.end(),
                                  [](std::string_view line) { return log_time(line).has_value(); });
  std::vector<WorkItem> items;
  for (size_t i = 0; i < lines.size(); ++i) {
    auto item = read_line(lines[i], is_log, max_tokens);
    if (!item.ok()) return invalid_argument("line {}: {}", i + 1, item.message());
    if (!item->has_value()) continue;
    items.push_back(std::move(**item));
    items.back().number = i;
  }
  if (items.empty()) return invalid_argument("the trace holds no request");
  std::sort(items.begin(), items.end(), [](const WorkItem& a, const WorkItem& b) {
    return std::pair(a.arrival_us, a.number) < std::pair(b.arrival_us, b.number);
  });
  if (is_log) {
    const TimeUs first = items.front().arrival_us;
    for (WorkItem& item : items) item.arrival_us -= first;
  }
  return items;
}

}  // namespace skein::bench
