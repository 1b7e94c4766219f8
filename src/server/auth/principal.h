// Who a request is from.
#pragma once

#include <algorithm>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "base/hash.h"
#include "sched/types.h"
#include "server/store/records.h"

namespace skein {

struct Principal {
  std::string key_id;  // empty: anonymous
  std::string name;    // for logs; "anonymous" without a key
  Priority tier = Priority::NORMAL;
  // Roots this tenant's prefix cache. It comes from the key's identity, so a new secret keeps it.
  Hash128 salt;
  std::vector<std::string> models;   // empty: all
  uint32_t requests_per_minute = 0;  // 0: no limit
  uint64_t tokens_per_minute = 0;    // 0: no limit
  bool admin = false;

  bool is_anonymous() const { return key_id.empty(); }
  bool may_use(std::string_view model) const {
    return models.empty() || std::find(models.begin(), models.end(), model) != models.end();
  }
  // Whose files and batches it sees.
  Scope scope() const { return {key_id, admin}; }
};

}  // namespace skein
