// How a row's router logits become experts and weights, and where they are kept: the same code for
// every host backend, since it is a few hundred numbers a row.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "backend/op_params.h"
#include "base/status.h"

namespace skein {

// `experts` and `weights` have as many elements as experts are to be used. Numbers are valid and
// distinct whatever the logits are, NaN included.
void route_row(std::span<const float> logits, RouterKind kind, std::span<uint32_t> experts,
               std::span<float> weights);

// used() entries for each row, one row after the other.
struct HostRoutes final : Routes {
  HostRoutes(size_t rows, uint32_t used)
      : Routes(rows, used), experts(rows * used), weights(rows * used) {}
  // As Backend::make_routes.
  static Result<std::unique_ptr<Routes>> make(size_t rows, uint32_t used) {
    return std::unique_ptr<Routes>(std::make_unique<HostRoutes>(rows, used));
  }

  void route(size_t row, std::span<const float> logits, RouterKind kind) {
    const size_t first = row * used();
    route_row(logits, kind, std::span(experts).subspan(first, used()),
              std::span(weights).subspan(first, used()));
  }

  std::vector<uint32_t> experts;
  std::vector<float> weights;
};

inline HostRoutes& host_routes(Routes& routes) {
  return static_cast<HostRoutes&>(routes);
}
inline const HostRoutes& host_routes(const Routes& routes) {
  return static_cast<const HostRoutes&>(routes);
}

}  // namespace skein
