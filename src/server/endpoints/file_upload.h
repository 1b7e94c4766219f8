// The body of POST /v1/files on its way to the disk.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <string_view>

#include "server/api/errors.h"
#include "server/http/http_server.h"
#include "server/http/multipart.h"
#include "server/store/file_store.h"

namespace skein {

// Why there is no room for a file: the key's limit, that of all keys, or the disk.
api::Error room_error(const Status& status);

// A form with a file and its purpose, in either order; other fields are ignored. The content goes
// to the store's folder as it comes, and is gone with this unless it is taken. On workers, one call
// at a time.
class FileUpload final : public http::BodySink, private http::PartReceiver {
 public:
  // `store` outlives the upload; `owner` is the id of the key that pays for the room.
  FileUpload(const FileStore& store, std::string owner, std::string_view content_type);

  std::optional<http::Response> write(std::string_view piece) override;
  std::optional<http::Response> finish() override;

  // After finish(): what was uploaded, once.
  std::unique_ptr<FileWriter> take_content() { return std::move(content_); }
  const std::string& name() const { return name_; }
  const std::string& purpose() const { return purpose_; }

 private:
  enum class Field : uint8_t { kFile, kPurpose, kOther };

  std::optional<http::Fault> begin_part(const http::PartHead& head) override;
  std::optional<http::Fault> part_data(std::string_view bytes) override;
  std::optional<http::Fault> end_part() override;
  http::Fault wrong(std::string_view field, std::string_view message);
  http::Fault not_stored(const Status& status);
  std::optional<http::Response> outcome(const std::optional<http::Fault>& fault) const;

  const FileStore& store_;
  const std::string owner_;
  std::optional<http::MultipartParser> parser_;  // none: the body is no form
  Field field_ = Field::kOther;
  std::unique_ptr<FileWriter> content_;
  std::string name_;
  std::string purpose_;
  std::string wrong_field_;                // that a fault of ours is about
  std::optional<api::Error> store_error_;  // that a fault stands for
};

}  // namespace skein
