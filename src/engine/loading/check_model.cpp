#include "engine/loading/check_model.h"

#include <fmt/format.h>
#include <vector>

#include "engine/loading/load_chat_template.h"
#include "engine/loading/load_tokenizer.h"
#include "engine/loading/sampling_defaults.h"
#include "format/weight_source.h"
#include "model/decoder.h"

namespace skein {

Status check_model(const std::string& path, uint32_t max_context) {
  SKEIN_ASSIGN(const WeightSource source, open_model(path));
  // A model without usable text can be served by ids, so that their statuses count for nothing
  // here.
  std::vector<std::string> ignored;
  (void)read_sampling_defaults(source, ignored);
  (void)load_tokenizer(source).status();
  (void)load_chat_template(source).status();
  const Status checked = Decoder::check_source(source, max_context);
  if (checked.ok()) return {};
  return {checked.code(), fmt::format("{}: {}", path, checked.message())};
}

}  // namespace skein
