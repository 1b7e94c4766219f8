// What expressions take, how they are forgotten, and expressions on their own: what a state keeps
// of them meanwhile.
#include <algorithm>
#include <unordered_set>

#include "base/check.h"
#include "grammar/regex.h"

namespace skein::grammar {

uint64_t RegexStore::bytes() const {
  return nodes_.capacity() * sizeof(Node) + lists_.capacity() * sizeof(ExprId) + text_.capacity() +
         text_starts_.capacity() * sizeof(uint32_t) + sets_.capacity() * sizeof(ByteSet) +
         table_.capacity() * sizeof(uint32_t) + derivatives_.bytes() + begins_.bytes() +
         live_.capacity() * sizeof(KnownLive) + straight_.bytes() + searches_.bytes();
}

RegexStore::Mark RegexStore::mark() {
  search_work_ = 0;
  searches_.enable();
  straight_.clear();  // as when all behind the mark is forgotten
  return {nodes_.size(), lists_.size(), text_.size(), sets_.size(), live_};
}

void RegexStore::forget_after(const Mark& mark) {
  nodes_.resize(mark.nodes);
  lists_.resize(mark.lists);
  text_.resize(mark.text);
  std::erase_if(texts_, [&](const auto& entry) { return entry.second >= mark.text; });
  std::erase_if(text_starts_, [&](uint32_t start) { return start >= mark.text; });
  std::erase_if(set_ids_, [&](const auto& entry) { return entry.second >= mark.sets; });
  sets_.resize(mark.sets);
  nodes_.shrink_to_fit();
  lists_.shrink_to_fit();
  text_.shrink_to_fit();
  sets_.shrink_to_fit();
  derivatives_.clear();
  begins_.clear();
  straight_.clear();
  std::vector<KnownLive>(mark.live).swap(live_);
  for (ExprId& known : common_) known = known < mark.nodes ? known : kNothing;
  full_ = question_failed_ = false;
  search_work_ = 0;
  searches_.forget();
  size_t size = 1024;
  while (size < nodes_.size() * 2 + 2) size *= 2;
  std::vector<uint32_t>(size / 2, 0).swap(table_);
  grow_table();
}

ExprId RegexStore::Saved::now(ExprId e, std::span<const ExprId> restored) const {
  if (e < first_) return e;
  const auto at = std::lower_bound(ids_.begin(), ids_.end(), e);
  SKEIN_CHECK(at != ids_.end() && *at == e, "expression {} was not saved", e);
  return restored[static_cast<size_t>(at - ids_.begin())];
}

RegexStore::Saved RegexStore::save(std::vector<ExprId> wanted, const Mark& mark) const {
  Saved saved;
  saved.first_ = mark.nodes;
  std::unordered_set<ExprId> met;
  while (!wanted.empty()) {
    const ExprId e = wanted.back();
    wanted.pop_back();
    if (e < mark.nodes || !met.insert(e).second) continue;
    const Node& node = nodes_[e];
    if (node.kind == Kind::kConcat) wanted.push_back(node.b);
    if (node.kind == Kind::kConcat || node.kind == Kind::kNot || node.kind == Kind::kRepeat) {
      wanted.push_back(node.a);
    }
    if (node.kind == Kind::kOr || node.kind == Kind::kAnd) {
      wanted.insert(wanted.end(), list(node).begin(), list(node).end());
    }
  }
  saved.ids_.assign(met.begin(), met.end());
  std::sort(saved.ids_.begin(), saved.ids_.end());  // parts are older than what is made of them
  for (const ExprId e : saved.ids_) saved.parts_.push_back(saved_part(e, mark));
  return saved;
}

RegexStore::Saved::Part RegexStore::saved_part(ExprId e, const Mark& mark) const {
  const Node& node = nodes_[e];
  Saved::Part part{.node = node, .set = {}, .text = {}, .parts = {}};
  if (node.kind == Kind::kClass) part.set = sets_[node.a];
  if (node.kind == Kind::kOr || node.kind == Kind::kAnd) {
    part.parts.assign(list(node).begin(), list(node).end());
  }
  if (node.kind == Kind::kLiteral && node.a >= mark.text) {
    const auto next = std::upper_bound(text_starts_.begin(), text_starts_.end(), node.a);
    const uint32_t start = *(next - 1);
    const size_t end = next != text_starts_.end() ? *next : text_.size();
    part.text = text_.substr(start, end - start);
    part.node.a -= start;
  }
  return part;
}

std::vector<ExprId> RegexStore::restore(const Saved& saved) {
  std::vector<ExprId> made;
  const auto now = [&](ExprId e) { return saved.now(e, made); };
  for (const Saved::Part& part : saved.parts_) {
    const Node& node = part.node;
    ExprId id = kNothing;
    switch (node.kind) {
      case Kind::kClass:
        id = byte_class(part.set);
        break;
      case Kind::kLiteral:
        id = part.text.empty() ? literal_slice(node.a, node.b)
                               : literal_slice(nodes_[literal(part.text)].a + node.a, node.b);
        break;
      case Kind::kConcat:
        id = intern(node.kind, now(node.a), now(node.b), 0, node.nullable, node.extended);
        break;
      case Kind::kNot:
      case Kind::kRepeat:
        id = intern(node.kind, now(node.a), node.b, node.c, node.nullable, node.extended);
        break;
      case Kind::kOr:
      case Kind::kAnd: {
        std::vector<ExprId> parts;
        for (const ExprId one : part.parts) parts.push_back(now(one));
        std::sort(parts.begin(), parts.end());
        id = intern_list(node.kind, parts);
        break;
      }
      default:
        id = intern(node.kind, node.a, node.b, node.c, node.nullable, node.extended);
        break;
    }
    made.push_back(id);
  }
  return made;
}

uint64_t RegexStore::literal_length(ExprId e) const {
  uint64_t length = 0;
  std::vector<ExprId> open{e};
  while (!open.empty()) {
    const Node& node = nodes_[open.back()];
    open.pop_back();
    if (node.kind == Kind::kLiteral) length += node.b;
    if (node.kind == Kind::kClass) ++length;
    if (node.kind == Kind::kConcat) open.push_back(node.b);
    if (node.kind == Kind::kConcat || node.kind == Kind::kRepeat) open.push_back(node.a);
    if (node.kind == Kind::kOr) open.insert(open.end(), list(node).begin(), list(node).end());
  }
  return length;
}

}  // namespace skein::grammar
