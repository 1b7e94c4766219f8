#include "text/stop_matcher.h"

#include <algorithm>
#include <utility>

#include "text/utf8.h"

namespace skein {

Result<StopMatcher> StopMatcher::create(std::vector<std::string> stops) {
  if (stops.size() > kMaxStops) {
    return invalid_argument("{} stop strings, at most {} are taken", stops.size(), kMaxStops);
  }
  StopMatcher matcher;
  for (std::string& text : stops) {
    if (text.empty()) return invalid_argument("a stop string is empty");
    if (text.size() > kMaxStopBytes) {
      return invalid_argument("a stop string has {} bytes, at most {} are taken", text.size(),
                              kMaxStopBytes);
    }
    if (utf8_repaired(text) != text) return invalid_argument("a stop string is not UTF-8");
    std::vector<uint16_t> fallback(text.size() + 1, 0);
    uint16_t border = 0;
    for (size_t i = 1; i < text.size(); ++i) {
      while (border > 0 && text[i] != text[border]) border = fallback[border];
      if (text[i] == text[border]) ++border;
      fallback[i + 1] = border;
    }
    matcher.stops_.push_back({std::move(text), std::move(fallback)});
  }
  return matcher;
}

bool StopMatcher::push(char byte) {
  bool found = false;
  pending_ = 0;
  for (size_t i = 0; i < stops_.size(); ++i) {
    Stop& stop = stops_[i];
    while (stop.length > 0 && stop.text[stop.length] != byte) {
      stop.length = stop.fallback[stop.length];
    }
    if (stop.text[stop.length] == byte) ++stop.length;
    pending_ = std::max<size_t>(pending_, stop.length);
    if (stop.length < stop.text.size()) continue;
    if (!found || stop.text.size() > matched_bytes()) matched_ = i;
    found = true;
    stop.length = stop.fallback[stop.length];
  }
  return found;
}

}  // namespace skein
