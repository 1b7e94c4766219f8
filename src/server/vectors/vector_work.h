// The two kinds of work that a VectorJob does: embeddings, and the order of documents.
#pragma once

#include <memory>

#include "server/api/vector_requests.h"
#include "server/vectors/vector_job.h"

namespace skein {

std::unique_ptr<VectorWork> make_work(api::EmbeddingRequest request);
std::unique_ptr<VectorWork> make_work(api::RerankRequest request);

// 501 where the model's vectors are not of this use; why is logged, for it may name what is in the
// files.
std::optional<api::Error> find_no_vectors(const ServedModel& served, bool ranks);

// Why a text of a request could not become ids, with the item's name.
api::Error item_error(const Status& status, std::string item);
// An item that no context can hold; both numbers.
std::optional<api::Error> check_item(const ServedModel& served, uint64_t tokens, std::string item);

}  // namespace skein
