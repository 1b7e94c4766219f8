// Every backend CHECKs before an op that the shapes its caller gave fit together. A mismatch
// is a bug of the caller, and would otherwise be a read or write out of bounds.
#pragma once

#include <span>

#include "backend/backend.h"

namespace skein {

// `awaits`: ids below 0 are not known yet.
void check_embed(const Matrix& table, std::span<const TokenId> ids, const Rows& out,
                 bool awaits = false);
void check_embed_by(const Matrix& table, const Step& step, const Rows& out);
void check_norm(const Rows& x, const NormParams& params, const Rows& out);
void check_linear(const LinearInput& in, const Matrix& matrix, const Rows& out);
void check_add(const Rows& x, const Rows& delta);
void check_activate(const Rows& x, const ActivationParams& params, const Rows& out);
void check_rope_angles(const Step& step, const Rope& rope, const Rows& out);
void check_attend(const Rows& q, const Rows& k, const Rows& v, const QkTransform& transform,
                  const Step& step, const KvCache& cache, const AttentionParams& params,
                  const Rows& out);
void check_route(const Rows& x, const Routes& routes);
void check_expert_linear(const Rows& x, std::span<const std::unique_ptr<Matrix>> experts,
                         const Routes& routes, const Rows& out);
void check_combine(const Rows& x, const Routes& routes, const Rows& out);
void check_gather(const Rows& x, std::span<const uint32_t> rows, const Rows& out);

}  // namespace skein
