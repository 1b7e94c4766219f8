#include "text/ordered_json.h"

#include <algorithm>
#include <numeric>
#include <utility>

namespace skein {
namespace {

// nlohmann's own builder looks each name up among its siblings, which is quadratic in an ordered
// object, and bounds nothing.
class Builder : public nlohmann::json_sax<OrderedJson> {
 public:
  bool null() override { return add(OrderedJson(nullptr)); }
  bool boolean(bool value) override { return add(OrderedJson(value)); }
  bool number_integer(number_integer_t value) override { return add(OrderedJson(value)); }
  bool number_unsigned(number_unsigned_t value) override { return add(OrderedJson(value)); }
  bool number_float(number_float_t value, const string_t&) override {
    return add(OrderedJson(value));
  }
  bool string(string_t& value) override { return add(OrderedJson(std::move(value))); }
  bool binary(binary_t&) override { return false; }

  bool start_object(size_t) override { return open(OrderedJson::object()); }
  bool start_array(size_t) override { return open(OrderedJson::array()); }
  bool key(string_t& name) override {
    names_.back() = std::move(name);
    return true;
  }
  bool end_object() override {
    drop_duplicates(open_.back());
    return close();
  }
  bool end_array() override { return close(); }

  bool parse_error(size_t position, const std::string&,
                   const nlohmann::detail::exception& error) override {
    offset = position > 0 ? position - 1 : 0;
    // The only other error is a number that no double can hold.
    reason = error.id == 406 ? "a number is out of range" : "not valid JSON";
    return false;
  }

  OrderedJson root;
  size_t offset = SIZE_MAX;  // of a syntax error
  std::string_view reason;

 private:
  using Members = std::vector<std::pair<const std::string, OrderedJson>>;

  // Members are sorted, not hashed: the client chooses the names, and could choose collisions.
  static void drop_duplicates(OrderedJson& object) {
    Members& members = object.get_ref<OrderedJson::object_t&>();
    std::vector<size_t> order(members.size());
    std::iota(order.begin(), order.end(), size_t{0});
    std::sort(order.begin(), order.end(), [&](size_t a, size_t b) {
      const int compared = members[a].first.compare(members[b].first);
      return compared != 0 ? compared < 0 : a < b;
    });
    std::vector<bool> dropped(members.size());
    bool any = false;
    for (size_t i = 0, first = 0; i < order.size(); ++i) {
      if (members[order[i]].first != members[order[first]].first) first = i;
      if (i == first) continue;
      members[order[first]].second = std::move(members[order[i]].second);
      dropped[order[i]] = any = true;
    }
    if (!any) return;
    Members unique;
    for (size_t i = 0; i < members.size(); ++i) {
      if (!dropped[i]) unique.emplace_back(members[i].first, std::move(members[i].second));
    }
    members = std::move(unique);
  }

  bool count() {
    if (++values_ <= kMaxJsonValues) return true;
    reason = "too many values";
    return false;
  }

  bool open(OrderedJson container) {
    if (open_.size() == kMaxJsonLevels) {
      reason = "nested too deeply";
      return false;
    }
    open_.push_back(std::move(container));
    names_.emplace_back();
    return count();
  }

  bool close() {
    OrderedJson done = std::move(open_.back());
    open_.pop_back();
    names_.pop_back();
    return attach(std::move(done));
  }

  bool add(OrderedJson value) { return count() && attach(std::move(value)); }

  bool attach(OrderedJson value) {
    if (open_.empty()) {
      root = std::move(value);
    } else if (open_.back().is_array()) {
      open_.back().get_ref<OrderedJson::array_t&>().push_back(std::move(value));
    } else {
      Members& members = open_.back().get_ref<OrderedJson::object_t&>();
      members.emplace_back(std::move(names_.back()), std::move(value));
    }
    return true;
  }

  std::vector<OrderedJson> open_;
  std::vector<std::string> names_;  // of the member that is being read, per level
  size_t values_ = 0;
};

}  // namespace

std::variant<OrderedJson, JsonError> parse_ordered_json(std::string_view text) {
  // The library takes a NUL for the end of the text.
  if (const size_t nul = text.find('\0'); nul != std::string_view::npos) {
    return JsonError{nul, "not valid JSON"};
  }
  Builder builder;
  try {
    if (OrderedJson::sax_parse(text, &builder)) return std::move(builder.root);
  } catch (const OrderedJson::exception&) {
    return JsonError{0, "not valid JSON"};
  }  // std::bad_alloc goes to the top of the thread: short memory is not the client's fault
  const size_t offset = builder.offset == SIZE_MAX ? text.size() : builder.offset;
  return JsonError{offset, builder.reason.empty() ? "not valid JSON" : builder.reason};
}

}  // namespace skein
