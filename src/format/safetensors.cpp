#include "format/safetensors.h"

#include <algorithm>
#include <exception>
#include <fmt/format.h>
#include <optional>
#include <string>
#include <string_view>
#include <utility>

#include "format/byte_reader.h"
#include "format/json.h"
#include "format/quote.h"

namespace skein {
namespace {

struct Entry {
  NamedTensor tensor;
  uint64_t begin = 0, end = 0;  // data_offsets
};

// Takes the header's events in the one order that the format allows:
//   {"__metadata__": {"key": "text", ...},
//    "name": {"dtype": "F32", "shape": [2, 3], "data_offsets": [0, 24]}, ...}
// No document is built, so a header of 100 MB costs what its entries cost.
class HeaderReader final : public nlohmann::json_sax<Json> {
 public:
  const Status& status() const { return status_; }
  std::optional<size_t> error_byte() const { return error_byte_; }
  std::vector<Entry>& entries() { return entries_; }

  bool start_object(size_t) override {
    if (field_ == Field::kTop) return enter(Field::kNames);
    if (field_ == Field::kMetadata) return enter(Field::kMetadataKeys);
    if (field_ != Field::kTensor) return refuse("an object where {} belongs", expected());
    dtype_.clear();
    has_shape_ = has_offsets_ = false;
    return enter(Field::kFields);
  }

  bool key(std::string& text) override {
    if (field_ == Field::kMetadataKeys) return true;
    if (field_ == Field::kNames) {
      return text == "__metadata__" ? enter(Field::kMetadata) : start_tensor(text);
    }
    if (text == "dtype" && dtype_.empty()) return enter(Field::kDtype);
    if (text == "shape" && !has_shape_) return enter(Field::kShape);
    if (text == "data_offsets" && !has_offsets_) return enter(Field::kOffsets);
    return refuse("field {} is unknown or there twice", in_quotes(text));
  }

  bool string(std::string& text) override {
    if (field_ == Field::kMetadataKeys) return true;
    if (field_ != Field::kDtype) return refuse("a string where {} belongs", expected());
    const std::optional<ElementType> type = element_type_of_name(text);
    if (!type || info(*type).quantized()) {
      return refuse("dtype {} is not one that is read", in_quotes(text));
    }
    entries_.back().tensor.view.type = *type;
    dtype_ = text;
    return enter(Field::kFields);
  }

  bool start_array(size_t) override {
    if (field_ != Field::kShape && field_ != Field::kOffsets) {
      return refuse("an array where {} belongs", expected());
    }
    if (in_array_) return refuse("an array inside of an array");
    in_array_ = true;
    numbers_.clear();
    return true;
  }

  bool number_unsigned(uint64_t value) override {
    if (!in_array_) return refuse("a number where {} belongs", expected());
    if (numbers_.size() == kMaxDims) {
      return refuse("more than {} numbers in {}", kMaxDims, expected());
    }
    numbers_.push_back(value);
    return true;
  }

  bool end_array() override {
    in_array_ = false;
    return field_ == Field::kShape ? end_shape() : end_offsets();
  }

  bool end_object() override {
    if (field_ == Field::kMetadataKeys) return enter(Field::kNames);
    if (field_ == Field::kNames) return enter(Field::kDone);
    if (dtype_.empty() || !has_shape_ || !has_offsets_) {
      return refuse("{} is missing", dtype_.empty() ? "dtype"
                                     : has_shape_   ? "data_offsets"
                                                    : "shape");
    }
    return end_tensor();
  }

  bool number_integer(int64_t value) override { return refuse("the number {} is negative", value); }
  bool number_float(double, const std::string& text) override {
    return refuse("{} is not a whole number of 64 bits", in_quotes(text));
  }
  bool null() override { return refuse("null where {} belongs", expected()); }
  bool boolean(bool) override { return refuse("a bool where {} belongs", expected()); }
  bool binary(Json::binary_t&) override { return refuse("binary data"); }
  bool parse_error(size_t byte, const std::string&, const nlohmann::detail::exception&) override {
    error_byte_ = byte;
    return false;
  }

 private:
  enum class Field : uint8_t {
    kTop,
    kNames,
    kMetadata,
    kMetadataKeys,
    kTensor,
    kFields,
    kDtype,
    kShape,
    kOffsets,
    kDone
  };

  std::string_view expected() const {
    switch (field_) {
      case Field::kDtype:
        return "dtype (a string)";
      case Field::kShape:
        return "shape (an array of numbers)";
      case Field::kOffsets:
        return "data_offsets (an array of two numbers)";
      case Field::kMetadataKeys:
        return "a string of __metadata__";
      default:
        return "an object";
    }
  }

  bool enter(Field field) {
    field_ = field;
    return true;
  }

  template <class... Args>
  bool refuse(fmt::format_string<Args...> format, Args&&... args) {
    std::string text = fmt::format(format, std::forward<Args>(args)...);
    const bool in_tensor = field_ >= Field::kTensor && field_ <= Field::kOffsets;
    status_ = invalid_argument(
        "{}{}",
        in_tensor ? fmt::format("tensor {}: ", in_quotes(entries_.back().tensor.name)) : "header: ",
        text);
    return false;
  }

  bool start_tensor(std::string& name) {
    if (entries_.size() == kMaxSafetensorsTensors) {
      return refuse("more than {} tensors", kMaxSafetensorsTensors);
    }
    if (name.empty() || name.size() > kMaxSafetensorsNameBytes) {
      return refuse("a tensor name of {} bytes, 1 to {} are read", name.size(),
                    kMaxSafetensorsNameBytes);
    }
    entries_.emplace_back().tensor.name = std::move(name);
    return enter(Field::kTensor);
  }

  bool end_shape() {
    entries_.back().tensor.view.shape = Shape::of(numbers_).value();  // at most kMaxDims of them
    has_shape_ = true;
    return enter(Field::kFields);
  }

  bool end_offsets() {
    if (numbers_.size() != 2) return refuse("data_offsets has {} numbers, not 2", numbers_.size());
    entries_.back().begin = numbers_[0];
    entries_.back().end = numbers_[1];
    has_offsets_ = true;
    return enter(Field::kFields);
  }

  bool end_tensor() {
    const Entry& entry = entries_.back();
    const TensorView& view = entry.tensor.view;
    const auto size = checked_byte_size(view.type, view.shape);
    if (!size.ok()) return refuse("{}", size.message());
    if (entry.end < entry.begin) {
      return refuse("data_offsets end at {} before they begin at {}", entry.end, entry.begin);
    }
    if (entry.end - entry.begin != *size) {
      return refuse("{} of shape {} takes {} bytes, data_offsets {} to {} are {}", dtype_,
                    view.shape.to_string(), *size, entry.begin, entry.end, entry.end - entry.begin);
    }
    return enter(Field::kNames);
  }

  Field field_ = Field::kTop;
  bool in_array_ = false;
  std::string dtype_;  // of the tensor at hand; empty until it came
  bool has_shape_ = false, has_offsets_ = false;
  std::vector<uint64_t> numbers_;
  std::vector<Entry> entries_;
  Status status_;
  std::optional<size_t> error_byte_;
};

Result<std::vector<Entry>> read_header(std::string_view text) {
  HeaderReader reader;
  try {
    if (Json::sax_parse(text, &reader)) return std::move(reader.entries());
  } catch (const std::exception& error) {
    return invalid_argument("header: {}", error.what());
  }
  if (reader.error_byte()) {
    return invalid_argument("header: not valid JSON at {}",
                            json_position(text, *reader.error_byte()));
  }
  return reader.status();
}

Status sort_by_name(std::vector<Entry>& entries) {
  std::sort(entries.begin(), entries.end(),
            [](const Entry& a, const Entry& b) { return a.tensor.name < b.tensor.name; });
  const auto twice = std::adjacent_find(
      entries.begin(), entries.end(),
      [](const Entry& a, const Entry& b) { return a.tensor.name == b.tensor.name; });
  if (twice == entries.end()) return ok_status();
  return invalid_argument("tensor {} is there twice", in_quotes(twice->tensor.name));
}

// The spans must follow each other from the first byte of the data to the last.
Status place(std::vector<Entry>& entries, std::span<const std::byte> data) {
  std::vector<Entry*> order;
  order.reserve(entries.size());
  for (Entry& entry : entries) order.push_back(&entry);
  std::sort(order.begin(), order.end(), [](const Entry* a, const Entry* b) {
    return std::pair(a->begin, a->end) < std::pair(b->begin, b->end);
  });
  uint64_t covered = 0;
  for (Entry* at : order) {
    Entry& entry = *at;
    const std::string name = in_quotes(entry.tensor.name);
    if (entry.end > data.size()) {
      return data_loss(
          "tensor {}: data_offsets {} to {} are outside of the data, which has {} bytes", name,
          entry.begin, entry.end, data.size());
    }
    if (entry.begin < covered) {
      return invalid_argument("tensor {}: starts at {}, before the previous tensor ends at {}",
                              name, entry.begin, covered);
    }
    if (entry.begin > covered) {
      return invalid_argument("tensor {}: starts at {}, which leaves a hole after {}", name,
                              entry.begin, covered);
    }
    entry.tensor.view.bytes = data.subspan(entry.begin, entry.end - entry.begin);
    covered = entry.end;
  }
  if (covered != data.size()) {
    return invalid_argument("the tensors end at {}, the data has {} bytes", covered, data.size());
  }
  return ok_status();
}

}  // namespace

Result<std::vector<NamedTensor>> parse_safetensors(std::span<const std::byte> bytes) {
  ByteReader in(bytes);
  auto length = in.number<uint64_t>();
  if (!length.ok()) return data_loss("header length: {}", length.message());
  if (*length > kMaxSafetensorsHeaderBytes) {
    return out_of_range("a header of {} bytes, at most {}", *length, kMaxSafetensorsHeaderBytes);
  }
  auto header = in.take(*length);
  if (!header.ok()) {
    return data_loss("a header of {} bytes, the file has {} after its length", *length,
                     in.remaining());
  }
  SKEIN_ASSIGN(std::vector<Entry> entries,
               read_header({reinterpret_cast<const char*>(header->data()), header->size()}));
  SKEIN_TRY(sort_by_name(entries));
  SKEIN_TRY(place(entries, bytes.subspan(in.offset())));
  std::vector<NamedTensor> tensors;
  tensors.reserve(entries.size());
  for (Entry& entry : entries) tensors.push_back(std::move(entry.tensor));
  return tensors;
}

}  // namespace skein
