// What the prefix cache of a model holds, in the words of vLLM's KV events (msgpack).
//
// A message is [time, [events], 0]. Blocks that were stored one after the other in one text are one
// BlockStored, blocks that left together one BlockRemoved. A first block says in `extra_keys` whose
// it is: by the name that a router has for the tenant, or else by its salt in hexadecimal.
#pragma once

#include <cstdint>
#include <span>
#include <string>

#include "engine/loop/kv_event_feed.h"
#include "server/kv_events/tenant_names.h"

namespace skein {

// How an event is written: as an array that begins with its type, which all readers know, or as a
// map, as vLLM does from June 2026 on.
enum class KvEventEncoding : uint8_t { kArray, kMap };

// `names` may be null: nobody has names for tenants.
std::string encode_kv_events(std::span<const KvNotice> notices, KvEventEncoding encoding,
                             double unix_time_s, const TenantNames* names = nullptr);

}  // namespace skein
