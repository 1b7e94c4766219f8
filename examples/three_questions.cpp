// Three questions at once: their answers come from the same passes over the model.
//
//   g++ -std=c++20 three_questions.cpp -lskein -o three_questions
//   ./three_questions SmolLM2-135M-Instruct.Q4_1.gguf
#include <cstdio>
#include <skein/skein.h>
#include <string>
#include <vector>

int main(int argc, char** argv) {
  if (argc != 2) {
    std::fprintf(stderr, "usage: %s MODEL\n", argv[0]);
    return 2;
  }
  try {
    skein::Model model = skein::Model::load(argv[1]);
    const std::vector<std::string> questions = {"What is 2+2?", "Why is the sky blue?",
                                                "Name three birds."};
    skein::GenerateOptions options;
    options.max_tokens = 40;
    options.temperature = 0;

    std::vector<skein::Stream> answers;
    for (const std::string& question : questions) {
      answers.push_back(model.chat({{"user", question}}, options));
    }
    for (size_t i = 0; i < answers.size(); ++i) {
      std::printf("> %s\n", questions[i].c_str());
      for (std::string text; answers[i].next(text);) std::printf("%s", text.c_str());
      const skein::Summary& summary = answers[i].summary();
      std::printf("\n  [%u tokens, %s]\n", summary.generated_tokens, summary.finish_reason.c_str());
    }
  } catch (const skein::Error& error) {
    std::fprintf(stderr, "%s\n", error.what());
    return 1;
  }
}
