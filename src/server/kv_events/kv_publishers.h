// KvPublishers: the KvPublisher of each model that was named at the start, on ports one after the
// other, and the key of the hashes by which contents are named.
#pragma once

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "base/hash.h"
#include "base/status.h"
#include "engine/manager/load_served_model.h"
#include "server/kv_events/kv_publisher.h"

namespace skein {

struct KvEventSettings {
  // Its port is the first model's; in its topic {model} stands for the model's name.
  KvPublisher::Options options;
  std::vector<std::string> models;  // none: no events
};

class KvPublishers {
 public:
  // Listens on two ports a model. `salt_key` is the store's: where servers share one, the same
  // contents have the same hash on all of them.
  Status open(const KvEventSettings& settings, const HashKey& salt_key);
  Status start();

  // By which names blocks of tenants are told of, from now on.
  TenantNames& tenants() { return *tenants_; }
  // Who tells of a model; null: nobody.
  const KvPublisher* find(const std::string& model) const;
  // What the loader of a model needs; no feed: nobody is told of it.
  ServingOptions::KvEvents of(const std::string& model) const;
  std::vector<std::pair<std::string, KvEventStats>> stats() const;

 private:
  HashKey hash_key_;
  const std::shared_ptr<TenantNames> tenants_ = std::make_shared<TenantNames>();
  std::vector<std::pair<std::string, std::unique_ptr<KvPublisher>>> publishers_;
};

}  // namespace skein
