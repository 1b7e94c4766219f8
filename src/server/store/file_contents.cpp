#include "server/store/file_contents.h"

#include <algorithm>
#include <utility>

#include "server/store/random.h"

namespace skein {
namespace {

constexpr std::string_view kPrefix = "file-";
constexpr size_t kIdBytes = 12;

}  // namespace

std::string make_file_id() {
  return std::string(kPrefix) + random_hex(kIdBytes);
}

bool is_file_id(std::string_view id) {
  return id.size() == kPrefix.size() + 2 * kIdBytes && id.starts_with(kPrefix) &&
         std::all_of(id.begin() + kPrefix.size(), id.end(),
                     [](char c) { return (c >= '0' && c <= '9') || (c >= 'a' && c <= 'f'); });
}

FileWriter::FileWriter(std::string id, uint64_t max_bytes, size_t buffer_bytes,
                       std::unique_ptr<FileClaim> claim)
    : id_(std::move(id)),
      max_bytes_(max_bytes),
      buffer_bytes_(buffer_bytes),
      claim_(std::move(claim)) {}

void FileWriter::discard() {
  if (!settled_) remove();
  settled_ = true;
  claim_.reset();
}

void FileWriter::keep() {
  if (!settled_) claim_->keep();
  settled_ = true;
}

Status FileWriter::append(std::string_view bytes) {
  SKEIN_TRY(failure_);
  if (bytes.size() > max_bytes_ - bytes_) {
    failure_ = out_of_range("the file has more than {} bytes, the most that is taken", max_bytes_);
    return failure_;
  }
  bytes_ += bytes.size();
  buffer_ += bytes;
  return buffer_.size() < buffer_bytes_ ? Status{} : flush();
}

Status FileWriter::flush() {
  if (failure_.ok() && !buffer_.empty()) failure_ = claim_->grow(buffer_.size());
  if (failure_.ok() && !buffer_.empty()) failure_ = write(buffer_);
  buffer_.clear();
  return failure_;
}

Status FileWriter::sync() {
  SKEIN_TRY(flush());
  failure_ = make_durable();
  return failure_;
}

}  // namespace skein
