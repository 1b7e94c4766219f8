// States on their own.
#include <algorithm>

#include "base/check.h"
#include "grammar/recognizer.h"

namespace skein::grammar {
namespace {

void make_unique(std::vector<uint32_t>& ids) {
  std::sort(ids.begin(), ids.end());
  ids.erase(std::unique(ids.begin(), ids.end()), ids.end());
}

// What became of `id`, where the ids of `sorted` are `now`.
uint32_t renamed(uint32_t id, const std::vector<uint32_t>& sorted,
                 const std::vector<uint32_t>& now) {
  const auto at = std::lower_bound(sorted.begin(), sorted.end(), id);
  SKEIN_CHECK(at != sorted.end() && *at == id, "{} was not saved", id);
  return now[static_cast<size_t>(at - sorted.begin())];
}

}  // namespace

Recognizer::Saved Recognizer::save(StateId state) const {
  Saved saved;
  const State& from = states_[state];
  saved.top = from.top;
  std::vector<ExprId> expressions;
  std::vector<uint32_t> open;
  if (from.top != kNone) open.push_back(from.top);
  for (const Frame& frame : frames(state)) {
    open.push_back(frame.row);
    saved.frame_rows.push_back(frame.row);
    saved.frame_lexers.emplace_back(begun(frame.lexer).begin(), begun(frame.lexer).end());
    for (const Begun& one : begun(frame.lexer)) {
      saved.seen_ids.push_back(one.seen);
      expressions.push_back(one.rest);
    }
  }
  while (!open.empty()) {  // rows are made of older ones
    make_unique(open);
    const uint32_t row = open.back();
    open.pop_back();
    saved.row_ids.push_back(row);
    for (uint32_t i = 0; i < rows_[row].kernel_count; ++i) {
      const Item& item = items_[rows_[row].kernel_from + i];
      saved.seen_ids.push_back(item.seen);
      if (item.origin != kNone) open.push_back(item.origin);
    }
  }
  make_unique(saved.row_ids);
  make_unique(saved.seen_ids);
  for (const uint32_t row : saved.row_ids) {
    const auto first = items_.begin() + rows_[row].kernel_from;
    saved.kernels.emplace_back(first, first + rows_[row].kernel_count);
  }
  for (const uint32_t id : saved.seen_ids) {
    saved.seen.push_back(seen_[id]);
    expressions.push_back(seen_[id].excluded);
    expressions.insert(expressions.end(), seen_[id].spellings.begin(), seen_[id].spellings.end());
  }
  saved.expressions = rules_.regex->save(std::move(expressions), mark_);
  return saved;
}

StateId Recognizer::restore(const Saved& saved) {
  if (saved.top == kNone && saved.frame_rows.empty()) return kDeadState;
  const std::vector<ExprId> made = regex().restore(saved.expressions);
  const auto now = [&](ExprId e) { return saved.expressions.now(e, made); };
  std::vector<uint32_t> seen_now, rows_now;
  for (Seen seen : saved.seen) {
    for (ExprId& text : seen.spellings) text = now(text);
    seen.excluded = now(seen.excluded);
    seen_now.push_back(intern_seen(std::move(seen)));
  }
  for (std::vector<Item> kernel : saved.kernels) {
    for (Item& item : kernel) {
      item.seen = renamed(item.seen, saved.seen_ids, seen_now);
      if (item.origin != kNone) item.origin = renamed(item.origin, saved.row_ids, rows_now);
    }
    rows_now.push_back(intern_row(kernel));
  }
  std::vector<Frame> frames;
  for (size_t i = 0; i < saved.frame_rows.size(); ++i) {
    std::vector<Begun> begun = saved.frame_lexers[i];
    for (Begun& one : begun) {
      one.rest = now(one.rest);
      one.seen = renamed(one.seen, saved.seen_ids, seen_now);
    }
    frames.push_back({renamed(saved.frame_rows[i], saved.row_ids, rows_now), intern_lexer(begun)});
    row_lexer(frames.back().row);  // which a state's frames are told from
  }
  std::sort(frames.begin(), frames.end());
  const uint32_t top = saved.top != kNone ? renamed(saved.top, saved.row_ids, rows_now) : kNone;
  if (top != kNone) row_lexer(top);  // it is in what the state costs
  return intern_state(frames, top);
}

}  // namespace skein::grammar
