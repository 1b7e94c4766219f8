#include "server/endpoints/file_upload.h"

#include <utility>

#include "base/log.h"
#include "server/endpoints/reply.h"
#include "server/router.h"

namespace skein {
namespace {

constexpr size_t kMaxFileNameBytes = 512;
constexpr std::string_view kPurpose = "batch";
constexpr std::string_view kNoPurpose = "The purpose must be 'batch'.";

}  // namespace

api::Error room_error(const Status& status) {
  if (status.code() != Code::kInvalidArgument) return api::storage_failed(status);
  return {.status = 403, .message = status.message(), .code = "file_quota_exceeded"};
}

FileUpload::FileUpload(const FileStore& store, std::string owner, std::string_view content_type)
    : store_(store), owner_(std::move(owner)) {
  http::PartReceiver& receiver = *this;
  if (const auto boundary = http::boundary_of(content_type)) parser_.emplace(*boundary, receiver);
}

std::optional<http::Response> FileUpload::write(std::string_view piece) {
  if (!parser_) {
    return outcome(http::Fault{400, "A multipart/form-data body with a boundary is expected."});
  }
  return outcome(parser_->advance(piece));
}

std::optional<http::Response> FileUpload::finish() {
  if (!parser_) return write({});
  if (auto refused = outcome(parser_->finish())) return refused;
  if (content_ == nullptr) return outcome(wrong("file", "This field is required."));
  if (purpose_ != kPurpose) return outcome(wrong("purpose", kNoPurpose));
  if (const Status status = content_->flush(); !status.ok()) return outcome(not_stored(status));
  return std::nullopt;
}

std::optional<http::Fault> FileUpload::begin_part(const http::PartHead& head) {
  field_ = head.name == "file"      ? Field::kFile
           : head.name == "purpose" ? Field::kPurpose
                                    : Field::kOther;
  if (field_ == Field::kPurpose && !purpose_.empty()) {
    return wrong("purpose", "This field is there twice.");
  }
  if (field_ != Field::kFile) return std::nullopt;
  if (content_ != nullptr) return wrong("file", "One file at a time is expected.");
  if (!head.filename || head.filename->empty() || head.filename->size() > kMaxFileNameBytes) {
    return wrong("file", "A file with a name of at most 512 bytes is expected.");
  }
  name_ = *head.filename;
  auto content = store_.create(owner_);
  if (!content.ok()) return not_stored(content.status());
  content_ = std::move(*content);
  return std::nullopt;
}

std::optional<http::Fault> FileUpload::part_data(std::string_view bytes) {
  if (field_ == Field::kPurpose) {
    purpose_ += bytes;
    if (!kPurpose.starts_with(purpose_)) return wrong("purpose", kNoPurpose);
  }
  if (field_ != Field::kFile) return std::nullopt;
  const Status status = content_->append(bytes);
  if (status.ok()) return std::nullopt;
  if (status.code() == Code::kOutOfRange) {
    return http::Fault{413, "The file is larger than 512 MiB."};
  }
  return not_stored(status);
}

std::optional<http::Fault> FileUpload::end_part() {
  const bool short_purpose = field_ == Field::kPurpose && purpose_ != kPurpose;
  return short_purpose ? std::optional(wrong("purpose", kNoPurpose)) : std::nullopt;
}

http::Fault FileUpload::wrong(std::string_view field, std::string_view message) {
  wrong_field_ = field;
  return {400, message};
}

http::Fault FileUpload::not_stored(const Status& status) {
  store_error_ = room_error(status);
  if (store_error_->status >= 500) log_error("an upload was refused: {}", status.message());
  return {store_error_->status, store_error_->message};
}

std::optional<http::Response> FileUpload::outcome(const std::optional<http::Fault>& fault) const {
  if (!fault) return std::nullopt;
  if (store_error_) return error_response(api::Dialect::kOpenAi, *store_error_);
  return error_response(
      api::Dialect::kOpenAi,
      {.status = fault->status, .message = std::string(fault->message), .param = wrong_field_});
}

}  // namespace skein
