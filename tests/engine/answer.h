// All that a request of an engine said.
#pragma once

#include <gtest/gtest.h>
#include <vector>

#include "engine/loop/inference_service.h"

namespace skein {

struct Answer {
  std::vector<TokenId> tokens;
  std::vector<TokenLogprob> logprobs;  // as StreamChunk has them
  GenerationEnd end;
};

// Waits for the end; a stream that says nothing for a minute fails the test.
inline Answer read(RequestHandle& handle) {
  Answer answer;
  StreamChunk chunk;
  while (handle.stream().wait(chunk, 60 * kUsPerSecond)) {
    answer.tokens.insert(answer.tokens.end(), chunk.tokens.begin(), chunk.tokens.end());
    answer.logprobs.insert(answer.logprobs.end(), chunk.logprobs.begin(), chunk.logprobs.end());
    if (!chunk.end) continue;
    answer.end = *chunk.end;
    return answer;
  }
  ADD_FAILURE() << "request " << handle.id().value << " says nothing";
  return answer;
}

}  // namespace skein
