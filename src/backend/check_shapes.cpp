#include "backend/check_shapes.h"

namespace skein {
namespace {

void check_rows(const Rows& rows, const char* what) {
  SKEIN_CHECK(rows.rows <= 1 || rows.stride >= rows.width, "{}: rows of {} that are {} apart", what,
              rows.width, rows.stride);
  SKEIN_CHECK(rows.rows == 0 || rows.width == 0 || rows.data, "{}: no memory", what);
}

void check_same(const Rows& a, const Rows& b, const char* what) {
  check_rows(a, what);
  check_rows(b, what);
  SKEIN_CHECK(a.rows == b.rows && a.width == b.width, "{}: [{}, {}] and [{}, {}]", what, a.rows,
              a.width, b.rows, b.width);
}

void check_routes(const Routes& routes, size_t rows, const char* what) {
  SKEIN_CHECK(routes.used() > 0 && rows <= routes.rows(), "{}: {} rows, routes of {} for {}", what,
              rows, routes.used(), routes.rows());
}

void check_rope(const Rows& x, uint32_t heads, const Rows& angles) {
  check_rows(angles, "attend");
  SKEIN_CHECK(angles.rows == x.rows && angles.width % 2 == 0 && angles.width <= x.width / heads,
              "attend: {} heads of [{}, {}] by angles [{}, {}]", heads, x.rows, x.width,
              angles.rows, angles.width);
}

}  // namespace

void check_embed(const Matrix& table, std::span<const TokenId> ids, const Rows& out, bool awaits) {
  check_rows(out, "embed");
  SKEIN_CHECK(out.rows == ids.size() && out.width == table.inputs(),
              "embed: {} ids of width {} into [{}, {}]", ids.size(), table.inputs(), out.rows,
              out.width);
  for (const TokenId id : ids) {
    if (awaits && id < 0) continue;
    SKEIN_CHECK(id >= 0 && static_cast<size_t>(id) < table.outputs(), "embed: id {} of {}", id,
                table.outputs());
  }
}

void check_embed_by(const Matrix& table, const Step& step, const Rows& out) {
  check_rows(out, "embed_by");
  SKEIN_CHECK(out.rows == step.rows && out.width == table.inputs(),
              "embed_by: {} rows of width {} into [{}, {}]", step.rows, table.inputs(), out.rows,
              out.width);
}

void Backend::embed_by(RowFact /*fact*/, const Matrix& /*table*/, const Step& /*step*/,
                       Rows /*out*/) {
  SKEIN_CHECK(false, "{} runs no encoders", name());
}

void check_norm(const Rows& x, const NormParams& params, const Rows& out) {
  check_same(x, out, "norm");
  SKEIN_CHECK(params.parts > 0 && x.width > 0 && x.width % params.parts == 0,
              "norm: a width of {} in {} parts", x.width, params.parts);
}

void check_linear(const LinearInput& in, const Matrix& matrix, const Rows& out) {
  check_rows(in.x, "linear");
  check_rows(out, "linear");
  if (in.delta.data) check_same(in.x, in.delta, "linear");
  SKEIN_CHECK(in.norm == nullptr || (in.norm->parts == 1 && in.activation == nullptr),
              "linear: a norm of parts, or with an activation");
  SKEIN_CHECK(
      in.x.rows == out.rows && in.width() == matrix.inputs() && out.width == matrix.outputs(),
      "linear: [{}, {}] * [{}, {}]^T into [{}, {}]", in.x.rows, in.width(), matrix.outputs(),
      matrix.inputs(), out.rows, out.width);
}

void check_add(const Rows& x, const Rows& delta) {
  check_same(x, delta, "add");
}

void check_activate(const Rows& x, const ActivationParams& params, const Rows& out) {
  check_rows(x, "activate");
  check_rows(out, "activate");
  SKEIN_CHECK(x.rows == out.rows && x.width == out.width * (params.gated() ? 2 : 1),
              "activate: [{}, {}] into [{}, {}]", x.rows, x.width, out.rows, out.width);
}

void check_rope_angles(const Step& step, const Rope& rope, const Rows& out) {
  check_rows(out, "rope_angles");
  SKEIN_CHECK(out.rows == step.rows && out.width == rope.width(),
              "rope_angles: {} positions of {} into [{}, {}]", step.rows, rope.width(), out.rows,
              out.width);
}

void check_attend(const Rows& q, const Rows& k, const Rows& v, const QkTransform& transform,
                  const Step& step, const KvCache& cache, const AttentionParams& params,
                  const Rows& out) {
  const KvSpec& kv = cache.spec();
  check_same(k, v, "attend");
  check_same(q, out, "attend");
  SKEIN_CHECK(q.rows == step.rows && k.rows == step.rows, "attend: {} and {} rows in a step of {}",
              q.rows, k.rows, step.rows);
  SKEIN_CHECK(k.width == size_t{kv.heads} * kv.head_dim, "attend: rows of {} for {} x {}", k.width,
              kv.heads, kv.head_dim);
  SKEIN_CHECK(kv.heads > 0 && params.heads > 0 && params.heads % kv.heads == 0 &&
                  q.width == size_t{params.heads} * kv.head_dim,
              "attend: rows of {} for {} heads of {} over {}", q.width, params.heads, kv.head_dim,
              kv.heads);
  SKEIN_CHECK(!params.sees_all || params.window == 0, "attend: all, and a window of {}",
              params.window);
  if (transform.q_norm != nullptr) check_norm(q, *transform.q_norm, q);
  if (transform.k_norm != nullptr) check_norm(k, *transform.k_norm, k);
  if (transform.angles.data) check_rope(q, params.heads, transform.angles);
}

void check_route(const Rows& x, const Routes& routes) {
  check_rows(x, "route");
  check_routes(routes, x.rows, "route");
  SKEIN_CHECK(routes.used() <= x.width, "route: {} of {} experts", routes.used(), x.width);
}

void check_expert_linear(const Rows& x, std::span<const std::unique_ptr<Matrix>> experts,
                         const Routes& routes, const Rows& out) {
  check_rows(x, "expert_linear");
  check_rows(out, "expert_linear");
  const uint32_t used = routes.used();
  SKEIN_CHECK(used > 0 && out.rows % used == 0 && (x.rows == out.rows || x.rows * used == out.rows),
              "expert_linear: {} rows for {}, {} experts a row", x.rows, out.rows, used);
  check_routes(routes, out.rows / used, "expert_linear");
  for (const auto& matrix : experts) {
    SKEIN_CHECK(matrix->inputs() == x.width && matrix->outputs() == out.width,
                "expert_linear: [{}, {}] * [{}, {}]^T into [{}, {}]", x.rows, x.width,
                matrix->outputs(), matrix->inputs(), out.rows, out.width);
  }
}

void check_combine(const Rows& x, const Routes& routes, const Rows& out) {
  check_rows(x, "combine");
  check_rows(out, "combine");
  check_routes(routes, out.rows, "combine");
  SKEIN_CHECK(x.rows == out.rows * routes.used() && x.width == out.width,
              "combine: [{}, {}] into [{}, {}], {} a row", x.rows, x.width, out.rows, out.width,
              routes.used());
}

void check_gather(const Rows& x, std::span<const uint32_t> rows, const Rows& out) {
  check_rows(x, "gather");
  check_rows(out, "gather");
  SKEIN_CHECK(out.rows == rows.size() && x.width == out.width,
              "gather: {} of [{}, {}] into [{}, {}]", rows.size(), x.rows, x.width, out.rows,
              out.width);
  for (const uint32_t row : rows) SKEIN_CHECK(row < x.rows, "gather: row {} of {}", row, x.rows);
}

}  // namespace skein
