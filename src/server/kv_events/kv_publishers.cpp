#include "server/kv_events/kv_publishers.h"

#include <span>
#include <string_view>

#include "base/log.h"

namespace skein {
namespace {

constexpr std::string_view kPurpose = "skein kv events";
constexpr uint32_t kPortsOfAModel = 2;

std::string topic_of(std::string topic, const std::string& model) {
  constexpr std::string_view kModel = "{model}";
  const size_t at = topic.find(kModel);
  return at == std::string::npos ? topic : topic.replace(at, kModel.size(), model);
}

}  // namespace

Status KvPublishers::open(const KvEventSettings& settings, const HashKey& salt_key) {
  hash_key_ = keyed_hash(salt_key, std::as_bytes(std::span(kPurpose)));
  uint32_t port = settings.options.port;
  for (const std::string& model : settings.models) {
    KvPublisher::Options options = settings.options;
    if (port > UINT16_MAX) {
      return invalid_argument("--kv-events: '{}' would have port {}, beyond {}", model, port,
                              UINT16_MAX);
    }
    options.port = static_cast<uint16_t>(port);
    options.topic = topic_of(options.topic, model);
    options.names = tenants_;
    SKEIN_ASSIGN(auto publisher, KvPublisher::open(options));
    log_info("KV events of {}: port {}, again from port {}", model, publisher->port(),
             publisher->replay_port());
    publishers_.emplace_back(model, std::move(publisher));
    if (port != 0) port += kPortsOfAModel;
  }
  return {};
}

Status KvPublishers::start() {
  for (const auto& [model, publisher] : publishers_) SKEIN_TRY(publisher->start());
  return {};
}

const KvPublisher* KvPublishers::find(const std::string& model) const {
  for (const auto& [name, publisher] : publishers_) {
    if (name == model) return publisher.get();
  }
  return nullptr;
}

ServingOptions::KvEvents KvPublishers::of(const std::string& model) const {
  const KvPublisher* publisher = find(model);
  if (publisher == nullptr) return {};
  return {publisher->feed(), hash_key_};
}

std::vector<std::pair<std::string, KvEventStats>> KvPublishers::stats() const {
  std::vector<std::pair<std::string, KvEventStats>> rows;
  for (const auto& [model, publisher] : publishers_) rows.emplace_back(model, publisher->stats());
  return rows;
}

}  // namespace skein
