// Any bytes as a chat template: a format is found within the probes' limits, and what it writes is
// parsed back where it was found in the template.
#include <cstdint>
#include <string>

#include "base/check.h"
#include "dialog/find_calls.h"
#include "dialog/find_format.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace skein;
  ChatTemplateSource source;
  source.text = std::string(reinterpret_cast<const char*>(data), size);
  source.bos_token = "<s>";
  source.eos_token = "</s>";
  const auto found = dialog::find_format(source);
  if (!found.ok() || found->calls_from != dialog::FormatSource::kTemplate) return 0;
  for (const auto& calls : dialog::unseen_calls(found->calls.parallel)) {
    SKEIN_CHECK(dialog::parses_back(found->calls, found->reasoning, calls), "calls are lost");
  }
  return 0;
}
