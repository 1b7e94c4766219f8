// A build without SKEIN_FLEET.
#include "server/grpc/grpc_face.h"

namespace skein {

class GrpcFace::Impl {};

bool has_grpc() {
  return false;
}

Result<std::unique_ptr<GrpcFace>> GrpcFace::open(const GrpcSettings&, ServerContext&,
                                                 KvPublishers&) {
  return invalid_argument(
      "--grpc: this skein was built without gRPC; build it with `make build FLEET=1`");
}

GrpcFace::GrpcFace(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
GrpcFace::~GrpcFace() = default;

const std::vector<std::pair<std::string, uint16_t>>& GrpcFace::ports() const {
  static const std::vector<std::pair<std::string, uint16_t>> none;
  return none;
}

void GrpcFace::stop(std::chrono::milliseconds) {}

}  // namespace skein
