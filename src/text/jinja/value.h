// Values of the template language: Python's types as far as chat templates can see them.
//
// A Value is a scalar or a counted reference to an Object. Objects live on the Heap of one render,
// which knows how many bytes are alive, frees without recursion however deep a structure is, and
// breaks the cycles that namespaces and closures can make when the render ends. One render is one
// thread; nothing here is shared between renders.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/status.h"

namespace skein::jinja {

// A string that remembers which of its bytes the template wrote and which came from the outside.
// Only the template's own text may yield control tokens, so the mark follows the bytes through
// slices, joins and filters; where a byte's origin is unclear it counts as data.
class MarkedText {
 public:
  MarkedText() = default;
  MarkedText(std::string bytes, bool from_template)
      : bytes_(std::move(bytes)), first_from_template_(from_template) {}

  const std::string& bytes() const { return bytes_; }
  size_t size() const { return bytes_.size(); }
  bool empty() const { return bytes_.empty(); }
  // The bytes that count against a budget: those of the text, and for every turn of the mark those
  // that a rendered piece of its own will take.
  size_t held_bytes() const { return bytes_.size() + flips_.size() * kFlipBytes; }

  void append(std::string_view bytes, bool from_template);
  void append(const MarkedText& other) { append_range(other, 0, other.size()); }
  // The bytes [begin, end) of `other` with their marks; begin <= end <= other.size().
  void append_range(const MarkedText& other, size_t begin, size_t end);
  MarkedText slice(size_t begin, size_t end) const;

  // True when every byte is the template's own (also of an empty text).
  bool from_template() const;

  // Calls fn(bytes, from_template) for each maximal run of equal marks, in order.
  template <class Fn>
  void for_each_run(Fn&& fn) const {
    size_t begin = 0;
    bool mark = first_from_template_;
    for (size_t i = 0; begin < bytes_.size(); ++i, mark = !mark) {
      const size_t end = i < flips_.size() ? flips_[i] : bytes_.size();
      fn(std::string_view(bytes_).substr(begin, end - begin), mark);
      begin = end;
    }
  }

 private:
  static constexpr size_t kFlipBytes = 64;

  std::string bytes_;
  bool first_from_template_ = true;
  std::vector<size_t> flips_;  // ascending offsets in (0, size) at which the mark turns over
};

inline void MarkedText::append(std::string_view bytes, bool from_template) {
  if (bytes.empty()) return;
  if (bytes_.empty()) {
    first_from_template_ = from_template;
  } else if (const bool last = first_from_template_ == (flips_.size() % 2 == 0);
             last != from_template) {
    flips_.push_back(bytes_.size());
  }
  bytes_.append(bytes);
}

inline void MarkedText::append_range(const MarkedText& other, size_t begin, size_t end) {
  if (begin >= end) return;
  auto flip = std::upper_bound(other.flips_.begin(), other.flips_.end(), begin);
  bool mark = other.first_from_template_ == ((flip - other.flips_.begin()) % 2 == 0);
  const std::string_view bytes = other.bytes_;
  while (begin < end) {
    const size_t stop = flip == other.flips_.end() ? end : std::min(*flip, end);
    append(bytes.substr(begin, stop - begin), mark);
    begin = stop;
    mark = !mark;
    if (flip != other.flips_.end()) ++flip;
  }
}

inline MarkedText MarkedText::slice(size_t begin, size_t end) const {
  MarkedText out;
  out.append_range(*this, begin, end);
  return out;
}

inline bool MarkedText::from_template() const {
  return bytes_.empty() || (first_from_template_ && flips_.empty());
}

enum class Kind : uint8_t {
  kUndefined,
  kNone,
  kBool,
  kInt,
  kFloat,
  kString,
  kList,
  kTuple,
  kView,      // dict.keys(), dict.values(), dict.items()
  kIterator,  // what map, select, reverse, ... give: no length, always true, read once
  kRange,
  kDict,
  kNamespace,
  kFunction,
  kMacro,
  kLoop,
  kCycler,
  kJoiner,
};

class Heap;

class Object {
 public:
  Object(const Object&) = delete;
  Object& operator=(const Object&) = delete;
  virtual ~Object() = default;
  // Drops every reference to other objects.
  virtual void clear() {}

 protected:
  Object() = default;

 private:
  friend class Heap;
  template <class T>
  friend class Ref;
  friend class Value;
  void retain() { ++references_; }
  inline void release();

  Heap* heap_ = nullptr;
  Object* previous_ = nullptr;
  Object* next_ = nullptr;
  uint64_t bytes_ = 0;
  uint64_t references_ = 0;
};

template <class T>
class Ref {
 public:
  Ref() = default;
  explicit Ref(T* object) : object_(object) { retain(); }
  Ref(const Ref& other) : object_(other.object_) { retain(); }
  Ref(Ref&& other) noexcept : object_(std::exchange(other.object_, nullptr)) {}
  Ref& operator=(Ref other) noexcept {
    std::swap(object_, other.object_);
    return *this;
  }
  ~Ref() {
    if (object_ != nullptr) object_->release();
  }

  T* get() const { return object_; }
  T& operator*() const { return *object_; }
  T* operator->() const { return object_; }
  explicit operator bool() const { return object_ != nullptr; }

 private:
  void retain() {
    if (object_ != nullptr) object_->retain();
  }
  T* object_ = nullptr;
};

class Heap {
 public:
  Heap() = default;
  Heap(const Heap&) = delete;
  Heap& operator=(const Heap&) = delete;
  ~Heap();

  // `extra_bytes`: the bytes that the object holds beyond its own size.
  template <class T, class... Args>
  Ref<T> make(uint64_t extra_bytes, Args&&... args) {
    T* object = new T(std::forward<Args>(args)...);
    adopt(object, sizeof(T) + extra_bytes);
    return Ref<T>(object);
  }
  void grow(Object& object, uint64_t bytes) {
    object.bytes_ += bytes;
    live_bytes_ += bytes;
  }
  // Bytes held outside objects (output that is being written).
  void add_bytes(uint64_t bytes) { live_bytes_ += bytes; }
  void remove_bytes(uint64_t bytes) { live_bytes_ -= bytes; }
  uint64_t live_bytes() const { return live_bytes_; }

 private:
  friend class Object;
  void adopt(Object* object, uint64_t bytes);
  void bury(Object* object);

  Object* live_ = nullptr;
  Object* dead_ = nullptr;
  bool burying_ = false;
  uint64_t live_bytes_ = 0;
};

void Object::release() {
  if (--references_ == 0) heap_->bury(this);
}

struct StringObject;
struct SequenceObject;
struct DictObject;
struct RangeObject;

class Value {
  union Bits {
    Object* object = nullptr;
    bool boolean;
    int64_t integer;
    double real;
  };

 public:
  Value() = default;  // undefined without a hint
  Value(const Value& other) : kind_(other.kind_), data_(other.data_), bits_(other.bits_) {
    if (holds_object()) bits_.object->retain();
  }
  Value(Value&& other) noexcept : kind_(other.kind_), data_(other.data_), bits_(other.bits_) {
    other.kind_ = Kind::kNone;
  }
  Value& operator=(Value other) noexcept {
    std::swap(kind_, other.kind_);
    std::swap(data_, other.data_);
    std::swap(bits_, other.bits_);
    return *this;
  }
  ~Value() {
    if (holds_object()) bits_.object->release();
  }

  // `data`: the scalar came from outside the template, and so does what it prints as.
  static Value none(bool data = false) { return {Kind::kNone, data, {}}; }
  static Value boolean(bool value, bool data = false) {
    return {Kind::kBool, data, {.boolean = value}};
  }
  static Value integer(int64_t value, bool data = false) {
    return {Kind::kInt, data, {.integer = value}};
  }
  static Value real(double value, bool data = false) {
    return {Kind::kFloat, data, {.real = value}};
  }
  template <class T>
  static Value object(Kind kind, const Ref<T>& object) {
    object.get()->retain();
    return {kind, false, {.object = object.get()}};
  }

  Kind kind() const { return kind_; }
  bool is(Kind kind) const { return kind_ == kind; }
  bool is_data() const { return data_; }
  bool is_undefined() const { return kind_ == Kind::kUndefined; }
  bool is_none() const { return kind_ == Kind::kNone; }
  bool is_string() const { return kind_ == Kind::kString; }
  bool is_dict() const { return kind_ == Kind::kDict; }
  bool is_integral() const { return kind_ == Kind::kInt || kind_ == Kind::kBool; }
  bool is_number() const { return is_integral() || kind_ == Kind::kFloat; }
  // Lists, tuples, views and iterators: everything that holds a SequenceObject.
  bool is_sequence_object() const { return kind_ >= Kind::kList && kind_ <= Kind::kIterator; }

  bool as_bool() const { return bits_.boolean; }
  int64_t as_int() const { return kind_ == Kind::kBool ? (bits_.boolean ? 1 : 0) : bits_.integer; }
  double as_double() const {
    return kind_ == Kind::kFloat ? bits_.real : static_cast<double>(as_int());
  }
  StringObject& string() const;
  const MarkedText& text() const;
  const std::string& bytes() const { return text().bytes(); }
  SequenceObject& sequence() const;
  std::vector<Value>& items() const;
  DictObject& dict() const;
  RangeObject& range() const;
  template <class T>
  T& as() const {
    return *static_cast<T*>(bits_.object);
  }
  bool same_object(const Value& other) const {
    return holds_object() && other.holds_object() && bits_.object == other.bits_.object;
  }
  // An undefined value has one, its hint, or none.
  bool holds_object() const {
    return kind_ >= Kind::kString || (kind_ == Kind::kUndefined && bits_.object != nullptr);
  }

 private:
  Value(Kind kind, bool data, Bits bits) : kind_(kind), data_(data), bits_(bits) {}

  Kind kind_ = Kind::kUndefined;
  bool data_ = false;
  Bits bits_;
};

struct StringObject : Object {
  StringObject(MarkedText t, bool m) : text(std::move(t)), markup(m) {}
  MarkedText text;
  bool markup;           // Python's Markup: adding plain text to it escapes that text
  size_t code_points();  // counted once

 private:
  size_t code_points_ = SIZE_MAX;
};

struct SequenceObject : Object {
  explicit SequenceObject(std::vector<Value> v) : items(std::move(v)) {}
  void clear() override { items.clear(); }
  std::vector<Value> items;
  size_t next = 0;         // kIterator: the items before it are spent
  const char* label = "";  // kView and kIterator: the Python type
  bool is_group = false;   // a tuple of groupby: .grouper and .list
};

// Keeps insertion order. Keys are hashable values; 1, 1.0 and true are one key as in Python.
struct DictObject : Object {
  void clear() override { entries.clear(), index.clear(); }
  const Value* find(const Value& key) const;
  const Value* find(std::string_view key) const;
  // Adds or replaces; false when the key is not hashable.
  bool set(const Value& key, Value value);

  std::vector<std::pair<Value, Value>> entries;
  std::map<std::string, size_t, std::less<>> index;  // hash_key -> position in entries
};

struct RangeObject : Object {
  RangeObject(int64_t a, int64_t s, int64_t n) : start(a), step(s), count(n) {}
  int64_t at(int64_t i) const { return start + i * step; }
  int64_t start;
  int64_t step;
  int64_t count;
};

struct NamespaceObject : Object {
  void clear() override { attributes.clear(); }
  std::map<std::string, Value, std::less<>> attributes;
};

struct Args {
  std::vector<Value> positional;
  std::vector<std::pair<MarkedText, Value>> keywords;  // a ** may bring names from outside
};

struct Native;  // a row of a table of functions (runtime.h)

struct FunctionObject : Object {
  FunctionObject(const Native& n, Value s) : native(&n), self(std::move(s)) {}
  void clear() override { self = Value(); }
  const Native* native;
  Value self;
};

struct CyclerObject : Object {
  explicit CyclerObject(std::vector<Value> v) : items(std::move(v)) {}
  void clear() override { items.clear(), position = 0; }
  std::vector<Value> items;
  size_t position = 0;
};

struct JoinerObject : Object {
  explicit JoinerObject(Value s) : separator(std::move(s)) {}
  void clear() override { separator = Value(); }
  Value separator;
  bool used = false;
};

// The text that two equal keys share; false when the value is not hashable.
bool hash_key(const Value& value, std::string& key);

// Python's name of the value's type.
std::string_view type_name(const Value& value);

bool truthy(const Value& value);

}  // namespace skein::jinja
