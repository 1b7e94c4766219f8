// /v1/files: the inputs and outputs of batches.
#include <memory>
#include <utility>

#include "base/log.h"
#include "server/endpoints/file_upload.h"
#include "server/endpoints/reply.h"
#include "server/json.h"

namespace skein::endpoints {
namespace {

using json::append_member;

constexpr uint32_t kMaxListedFiles = 10'000;
constexpr size_t kReadBytes = 64 << 10;

std::string file_answer(const FileRecord& file) {
  std::string out = "{";
  append_member(out, "id", file.id);
  append_member(out, "object", "file");
  append_member(out, "bytes", file.bytes);
  append_member(out, "created_at", file.created_at_s);
  append_member(out, "filename", file.name);
  append_member(out, "purpose", file.purpose);
  return out.append(R"(,"status":"processed","status_details":null,"expires_at":null})");
}

// ContentStream sends a file's bytes to a client as fast as it reads them: a piece is read when the
// one before it has been taken. pump() runs on one worker at a time: it is called again only when a
// write was refused, which is the last thing it does.
class ContentStream : public std::enable_shared_from_this<ContentStream> {
 public:
  ContentStream(http::Workers& workers, Priority priority, std::string owner,
                http::Responder responder, OpenFile file)
      : workers_(workers),
        priority_(priority),
        owner_(std::move(owner)),
        responder_(std::move(responder)),
        file_(std::move(file)) {}

  void start() {
    responder_.start(
        {.content_type = "application/octet-stream", .content_length = file_.record.bytes});
    responder_.on_ready([self = shared_from_this()] { self->post(); });
    post();
  }

 private:
  void post() {
    const auto self = shared_from_this();
    const auto give_up = [self] { self->responder_.abort(); };
    if (!workers_.post(
            priority_, owner_, [self] { self->pump(); }, give_up)) {
      give_up();
    }
  }

  void pump() {
    while (sent_ < file_.record.bytes) {
      if (piece_.empty() && !read()) return responder_.abort();
      const size_t bytes = piece_.size();
      switch (responder_.write(piece_)) {
        case http::WriteResult::kTaken:
          sent_ += bytes;
          piece_.clear();
          break;
        case http::WriteResult::kFull:
        case http::WriteResult::kGone:
          return;
      }
    }
    responder_.finish();
  }

  bool read() {
    auto piece = file_.content->read(sent_, kReadBytes);
    if (!piece.ok() || piece->empty()) {
      log_error("file {} ends at byte {} of {}", file_.record.id, sent_, file_.record.bytes);
      return false;
    }
    piece_ = std::move(*piece);
    return true;
  }

  http::Workers& workers_;
  const Priority priority_;
  const std::string owner_;
  const http::Responder responder_;
  const OpenFile file_;
  uint64_t sent_ = 0;
  std::string piece_;  // read, not taken yet
};

Done<FileRecord> answer_with_file(const Call& call, const http::Responder& responder) {
  return [call, responder](const Result<FileRecord>& file) {
    if (!file.ok()) return send_store_error(call, responder, file.status());
    send_json(responder, file_answer(*file));
  };
}

}  // namespace

std::shared_ptr<http::BodySink> open_upload(ServerContext& context, const Call& call) {
  const std::string* type = call.request.head.header("content-type");
  return std::make_shared<FileUpload>(context.store.files(), call.principal->key_id,
                                      type == nullptr ? std::string_view() : *type);
}

void upload_file(ServerContext& context, Call& call, const http::Responder& responder) {
  const auto form = std::static_pointer_cast<FileUpload>(call.sink);
  context.store.files().commit(form->take_content(),
                               {call.principal->key_id, form->purpose(), form->name()},
                               answer_with_file(call, responder));
}

void list_files(ServerContext& context, Call& call, const http::Responder& responder) {
  auto options = list_options(call.request.head, kMaxListedFiles, kMaxListedFiles);
  if (!options.ok()) return send_error(call, responder, options.error());
  context.store.files().list(call.principal->scope(), *options,
                             [&context, call, responder](Result<Page<FileRecord>> page) {
                               send_page(context, call, responder, std::move(page), file_answer);
                             });
}

void get_file_content(ServerContext& context, Call& call, const http::Responder& responder) {
  context.store.files().open(
      call.id, call.principal->scope(), [&context, call, responder](Result<OpenFile> file) {
        if (!file.ok()) return send_store_error(call, responder, file.status());
        std::make_shared<ContentStream>(context.workers, call.priority, call.principal->key_id,
                                        responder, std::move(*file))
            ->start();
      });
}

void get_file(ServerContext& context, Call& call, const http::Responder& responder) {
  context.store.files().get(call.id, call.principal->scope(), answer_with_file(call, responder));
}

void delete_file(ServerContext& context, Call& call, const http::Responder& responder) {
  context.store.files().remove(
      call.id, call.principal->scope(), [call, responder](const Result<FileRecord>& file) {
        if (!file.ok()) return send_store_error(call, responder, file.status());
        std::string out = "{";
        append_member(out, "id", file->id);
        send_json(responder, out.append(R"(,"object":"file","deleted":true})"));
      });
}

}  // namespace skein::endpoints
