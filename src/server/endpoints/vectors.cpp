// POST /v1/embeddings and /v1/rerank.
#include <utility>

#include "server/endpoints/http_sink.h"
#include "server/endpoints/reply.h"
#include "server/vectors/vector_work.h"

namespace skein::endpoints {
namespace {

template <class Request>
void begin_vectors(ServerContext& context, Call& call, const http::Responder& responder,
                   api::Parsed<Request> request) {
  if (!request.ok()) return send_error(call, responder, request.error());
  if (!request->timeout_us) request->timeout_us = header_timeout_us(call.request.head);
  auto sink = std::make_unique<HttpSink>(responder, call.route->dialect);
  std::make_shared<VectorJob>(context, std::move(call), make_work(std::move(*request)),
                              std::move(sink))
      ->begin();
}

}  // namespace

void embeddings(ServerContext& context, Call& call, const http::Responder& responder) {
  begin_vectors(context, call, responder, api::parse_embedding_request(call.request.body));
}

void rerank(ServerContext& context, Call& call, const http::Responder& responder) {
  begin_vectors(context, call, responder, api::parse_rerank_request(call.request.body));
}

}  // namespace skein::endpoints
