#include "text/jinja/value.h"

#include <cmath>
#include <cstring>

#include "text/jinja/python_text.h"

namespace skein::jinja {

Heap::~Heap() {
  std::vector<Ref<Object>> alive;
  for (Object* object = live_; object != nullptr; object = object->next_) {
    alive.emplace_back(object);
  }
  for (const Ref<Object>& object : alive) object->clear();
}

void Heap::adopt(Object* object, uint64_t bytes) {
  object->heap_ = this;
  object->bytes_ = bytes;
  object->next_ = live_;
  if (live_ != nullptr) live_->previous_ = object;
  live_ = object;
  live_bytes_ += bytes;
}

// The destructor of one object may release many others; they queue up here instead of nesting.
void Heap::bury(Object* object) {
  if (object->previous_ != nullptr) object->previous_->next_ = object->next_;
  if (object->next_ != nullptr) object->next_->previous_ = object->previous_;
  if (live_ == object) live_ = object->next_;
  live_bytes_ -= object->bytes_;
  object->next_ = dead_;
  dead_ = object;
  if (burying_) return;
  burying_ = true;
  while (dead_ != nullptr) {
    Object* next = dead_;
    dead_ = next->next_;
    delete next;
  }
  burying_ = false;
}

size_t StringObject::code_points() {
  if (code_points_ == SIZE_MAX) code_points_ = count_code_points(text.bytes());
  return code_points_;
}

StringObject& Value::string() const {
  return as<StringObject>();
}
const MarkedText& Value::text() const {
  return as<StringObject>().text;
}
SequenceObject& Value::sequence() const {
  return as<SequenceObject>();
}
std::vector<Value>& Value::items() const {
  return as<SequenceObject>().items;
}
DictObject& Value::dict() const {
  return as<DictObject>();
}
RangeObject& Value::range() const {
  return as<RangeObject>();
}

namespace {

void append_number_key(const Value& value, std::string& key) {
  const double d = value.as_double();
  const bool whole = value.is_integral() || (std::floor(d) == d && std::fabs(d) < 9.2e18);
  const int64_t i = value.is_integral() ? value.as_int() : (whole ? static_cast<int64_t>(d) : 0);
  key += whole ? 'i' : 'f';
  char raw[8];
  std::memcpy(raw, whole ? static_cast<const void*>(&i) : &d, 8);
  key.append(raw, 8);
}

// Tuples can share their parts, so a small one may spell out to a huge key; such are refused.
bool append_key(const Value& value, std::string& key, int depth) {
  constexpr size_t kMaxTupleKey = 4096;
  if (depth > 0 && (depth > 50 || key.size() > kMaxTupleKey)) return false;
  switch (value.kind()) {
    case Kind::kUndefined:
      key += 'u';
      return true;
    case Kind::kNone:
      key += 'n';
      return true;
    case Kind::kBool:
    case Kind::kInt:
    case Kind::kFloat:
      append_number_key(value, key);
      return true;
    case Kind::kString:
      key += 's';
      key += std::to_string(value.bytes().size());
      key += ':';
      key += value.bytes();
      return true;
    case Kind::kTuple:
      key += '(';
      for (const Value& item : value.items()) {
        if (!append_key(item, key, depth + 1)) return false;
      }
      key += ')';
      return true;
    default:
      return false;
  }
}

}  // namespace

bool hash_key(const Value& value, std::string& key) {
  key.clear();
  return append_key(value, key, 0);
}

const Value* DictObject::find(const Value& key) const {
  if (key.is_string()) return find(std::string_view(key.bytes()));
  std::string text;
  if (!hash_key(key, text)) return nullptr;
  const auto it = index.find(text);
  return it == index.end() ? nullptr : &entries[it->second].second;
}

const Value* DictObject::find(std::string_view key) const {
  constexpr size_t kFewKeys = 8;
  if (entries.size() <= kFewKeys) {
    for (const auto& [k, v] : entries) {
      if (k.is_string() && k.bytes() == key) return &v;
    }
    return nullptr;
  }
  const auto it = index.find(fmt::format("s{}:{}", key.size(), key));
  return it == index.end() ? nullptr : &entries[it->second].second;
}

bool DictObject::set(const Value& key, Value value) {
  std::string text;
  if (!hash_key(key, text)) return false;
  const auto [it, added] = index.try_emplace(std::move(text), entries.size());
  if (added) {
    entries.emplace_back(key, std::move(value));
  } else {
    entries[it->second].second = std::move(value);
  }
  return true;
}

std::string_view type_name(const Value& value) {
  switch (value.kind()) {
    case Kind::kUndefined:
      return "Undefined";
    case Kind::kNone:
      return "NoneType";
    case Kind::kBool:
      return "bool";
    case Kind::kInt:
      return "int";
    case Kind::kFloat:
      return "float";
    case Kind::kString:
      return value.string().markup ? "Markup" : "str";
    case Kind::kList:
      return "list";
    case Kind::kTuple:
      return "tuple";
    case Kind::kView:
    case Kind::kIterator:
      return value.sequence().label;
    case Kind::kRange:
      return "range";
    case Kind::kDict:
      return "dict";
    case Kind::kNamespace:
      return "Namespace";
    case Kind::kFunction:
      return "function";
    case Kind::kMacro:
      return "Macro";
    case Kind::kLoop:
      return "LoopContext";
    case Kind::kCycler:
      return "Cycler";
    case Kind::kJoiner:
      return "Joiner";
  }
  return "object";
}

bool truthy(const Value& value) {
  switch (value.kind()) {
    case Kind::kUndefined:
    case Kind::kNone:
      return false;
    case Kind::kBool:
      return value.as_bool();
    case Kind::kInt:
      return value.as_int() != 0;
    case Kind::kFloat:
      return value.as_double() != 0.0;
    case Kind::kString:
      return !value.text().empty();
    case Kind::kList:
    case Kind::kTuple:
    case Kind::kView:
      return !value.items().empty();
    case Kind::kRange:
      return value.range().count != 0;
    case Kind::kDict:
      return !value.dict().entries.empty();
    default:
      return true;
  }
}

}  // namespace skein::jinja
