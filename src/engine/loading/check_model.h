// Reads what a model's files say as a load reads it, to see whether that can be done at all.
#pragma once

#include <cstdint>
#include <string>

#include "base/status.h"

namespace skein {

// Opens and interprets everything that a load interprets: headers, metadata, JSON, tokenizer, chat
// template, sampling defaults, the config and every tensor's presence and shape. Nothing is packed
// and nothing is kept. The status is the one that LoadedModel::load would give for these files.
Status check_model(const std::string& path, uint32_t max_context);

}  // namespace skein
