// /v1/models: what the key may use.
#include <utility>
#include <vector>

#include "server/answer/generate.h"
#include "server/api/answers.h"
#include "server/endpoints/endpoints.h"
#include "server/endpoints/reply.h"

namespace skein {
namespace {

std::vector<api::ModelInfo> models_of(const ServerContext& context, const Principal& who,
                                      int64_t created_s) {
  std::vector<api::ModelInfo> infos;
  for (const ModelStatus& model : context.models.models()) {
    if (!who.may_use(model.config.id)) continue;
    const uint64_t tokens = model.served ? model.served->max_request_tokens() : 0;
    infos.push_back({model.config.id, created_s, tokens});
  }
  return infos;
}

}  // namespace

void bind_models(Router& router, ServerContext& context) {
  // Files have many dates; for a client that sorts by `created`, one that never moves will do.
  const int64_t created_s = context.store.unix_time_s();
  router.bind(Endpoint::kModels, [&context, created_s](const Call& call,
                                                       const http::Responder& responder) {
    send_json(responder, api::model_list_answer(models_of(context, *call.principal, created_s)));
  });
  router.bind(Endpoint::kModel,
              [&context, created_s](const Call& call, const http::Responder& responder) {
                const auto id = model_for(context, *call.principal, call.id);
                if (!id.ok()) return send_error(call, responder, id.error());
                for (const api::ModelInfo& model : models_of(context, *call.principal, created_s)) {
                  if (model.id == call.id) return send_json(responder, api::model_answer(model));
                }
                send_error(call, responder, api::model_not_found(call.id));
              });
}

}  // namespace skein
