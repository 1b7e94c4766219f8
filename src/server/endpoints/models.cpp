// /v1/models: what the key may use.
#include <vector>

#include "server/answer/prompts.h"
#include "server/endpoints/reply.h"
#include "server/json.h"

namespace skein::endpoints {
namespace {

using json::append_member;

// Files have many dates; for a client that sorts by `created`, one that never moves will do.
std::string model_answer(const ServerContext& context, const ModelStatus& model) {
  std::string out = "{";
  append_member(out, "id", model.config.id);
  append_member(out, "object", "model");
  append_member(out, "created", context.started_at_s);
  append_member(out, "owned_by", "skein");
  // Not known before it is loaded.
  const uint64_t tokens = model.served ? model.served->max_request_tokens() : 0;
  if (tokens > 0) append_member(out, "max_model_len", tokens);
  if (model.served && !model.served->model().spec().encoder) {
    const LoadedModel& loaded = model.served->model();
    json::append_name(out, "sampling");
    out.append(sampling_json(loaded.sampling_defaults(), name_of(loaded.sampling_source())));
  }
  return out.append("}");
}

}  // namespace

void list_models(ServerContext& context, Call& call, const http::Responder& responder) {
  std::vector<ModelStatus> models = context.models.models();
  std::erase_if(models, [&](const auto& m) { return !call.principal->may_use(m.config.id); });
  std::string out = "{\"object\":\"list\",\"data\":";
  json::append_list(out, models,
                    [&](const ModelStatus& model) { out.append(model_answer(context, model)); });
  send_json(responder, out.append("}"));
}

void get_model(ServerContext& context, Call& call, const http::Responder& responder) {
  const auto id = model_for(context, *call.principal, call.id);
  if (!id.ok()) return send_error(call, responder, id.error());
  for (const ModelStatus& model : context.models.models()) {
    if (model.config.id != call.id) continue;
    return send_json(responder, model_answer(context, model));
  }
  send_error(call, responder, api::model_not_found(call.id));
}

}  // namespace skein::endpoints
