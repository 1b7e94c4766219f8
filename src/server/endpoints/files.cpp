// /v1/files: the inputs and outputs of batches.
#include <memory>
#include <utility>

#include "base/log.h"
#include "server/endpoints/endpoints.h"
#include "server/endpoints/file_upload.h"
#include "server/endpoints/reply.h"
#include "server/json/append.h"

namespace skein {
namespace {

constexpr uint32_t kMaxListedFiles = 10'000;
constexpr size_t kReadBytes = 64 << 10;

std::string file_answer(const FileRecord& file) {
  std::string out = R"({"id":)";
  json::append_string(out, file.id);
  out.append(R"(,"object":"file","bytes":)");
  json::append_int(out, static_cast<int64_t>(file.bytes));
  out.append(R"(,"created_at":)");
  json::append_int(out, file.created_at_s);
  out.append(R"(,"filename":)");
  json::append_string(out, file.name);
  out.append(R"(,"purpose":)");
  json::append_string(out, file.purpose);
  return out.append(R"(,"status":"processed","status_details":null,"expires_at":null})");
}

// A file's bytes to a client, as fast as it reads them: a piece is read when the one before it has
// been taken. pump() runs on one worker at a time: it is called again only when a write was
// refused, which is the last thing it does.
class ContentStream : public std::enable_shared_from_this<ContentStream> {
 public:
  ContentStream(http::Workers& workers, Priority priority, http::Responder responder, OpenFile file)
      : workers_(workers),
        priority_(priority),
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
            priority_, [self] { self->pump(); }, give_up)) {
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
    auto piece = read_part(file_.fd, sent_, kReadBytes);
    if (!piece.ok() || piece->empty()) {
      log_error("file {} ends at byte {} of {}", file_.record.id, sent_, file_.record.bytes);
      return false;
    }
    piece_ = std::move(*piece);
    return true;
  }

  http::Workers& workers_;
  const Priority priority_;
  const http::Responder responder_;
  const OpenFile file_;
  uint64_t sent_ = 0;
  std::string piece_;  // read, not taken yet
};

void upload(ServerContext& context, const Call& call, const http::Responder& responder) {
  const auto form = std::static_pointer_cast<FileUpload>(call.sink);
  context.store.files().commit(form->take_content(),
                               {call.principal->key_id, form->purpose(), form->name()},
                               [call, responder](const Result<FileRecord>& file) {
                                 if (!file.ok())
                                   return send_store_error(call, responder, file.status());
                                 send_json(responder, file_answer(*file));
                               });
}

void list_files(ServerContext& context, const Call& call, const http::Responder& responder) {
  auto options = list_options(call.request.head, kMaxListedFiles, kMaxListedFiles);
  if (!options.ok()) return send_error(call, responder, options.error());
  context.store.files().list(call.principal->scope(), *options,
                             [&context, call, responder](Result<Page<FileRecord>> page) {
                               send_page(context, call, responder, std::move(page), file_answer);
                             });
}

void content(ServerContext& context, const Call& call, const http::Responder& responder) {
  context.store.files().open(
      call.id, call.principal->scope(), [&context, call, responder](Result<OpenFile> file) {
        if (!file.ok()) return send_store_error(call, responder, file.status());
        std::make_shared<ContentStream>(context.workers, call.priority, responder, std::move(*file))
            ->start();
      });
}

}  // namespace

void bind_files(Router& router, ServerContext& context) {
  router.bind_upload(
      Endpoint::kFileUpload,
      [&context](const Call& call) {
        const std::string* type = call.request.head.header("content-type");
        return std::make_shared<FileUpload>(context.store.files(), call.principal->key_id,
                                            type == nullptr ? std::string_view() : *type);
      },
      [&context](const Call& call, const http::Responder& responder) {
        upload(context, call, responder);
      });
  router.bind(Endpoint::kFiles, [&context](const Call& call, const http::Responder& responder) {
    list_files(context, call, responder);
  });
  router.bind(Endpoint::kFile, [&context](const Call& call, const http::Responder& responder) {
    context.store.files().get(call.id, call.principal->scope(),
                              [call, responder](const Result<FileRecord>& file) {
                                if (!file.ok()) {
                                  return send_store_error(call, responder, file.status());
                                }
                                send_json(responder, file_answer(*file));
                              });
  });
  router.bind(Endpoint::kFileContent,
              [&context](const Call& call, const http::Responder& responder) {
                content(context, call, responder);
              });
  router.bind(
      Endpoint::kFileDelete, [&context](const Call& call, const http::Responder& responder) {
        context.store.files().remove(
            call.id, call.principal->scope(), [call, responder](const Result<FileRecord>& file) {
              if (!file.ok()) return send_store_error(call, responder, file.status());
              std::string out = R"({"id":)";
              json::append_string(out, file->id);
              send_json(responder, out.append(R"(,"object":"file","deleted":true})"));
            });
      });
}

}  // namespace skein
