#include "engine/pressure.h"

#include <algorithm>
#include <chrono>
#include <fmt/format.h>
#include <gtest/gtest.h>
#include <thread>

#include "base/rng.h"
#include "engine/loop/batch_inference_engine.h"
#include "engine/loop/model_runner.h"
#include "engine/manager/direct_inference.h"

namespace skein {

std::string PressureSetting::name() const {
  return fmt::format("prefix cache {}, {} tokens a step, {} threads, {}",
                     prefix_cache ? "on" : "off", step_tokens, threads,
                     mixed_classes ? "three classes" : "one class");
}

namespace {

FormSpec form_of(uint32_t number) {
  static const std::vector<FormSpec> kForms = {
      {.kind = FormSpec::Kind::kJsonObject},
      {.kind = FormSpec::Kind::kJsonSchema,
       .text = R"({"type":"object","properties":{"name":{"type":"string","maxLength":30},)"
               R"("n":{"type":"integer","minimum":-5,"maximum":5000},"t":{"enum":["a","bc"]}},)"
               R"("required":["name","n"]})"},
      {.kind = FormSpec::Kind::kJsonSchema,
       .text = R"({"type":"array","items":{"type":["number","null","boolean"]},"minItems":3,)"
               R"("uniqueItems":true})"},
      {.kind = FormSpec::Kind::kRegex, .text = "([A-Z][a-z]{1,9} )*[0-9]{3,20}\\."},
      {.kind = FormSpec::Kind::kChoice, .choices = {"yes", "no", "perhaps, but who knows"}},
      {.kind = FormSpec::Kind::kGbnf,
       .text = "root ::= expr \"=\" expr\nexpr ::= [0-9]+ | \"(\" expr [-+*] expr \")\""},
  };
  return kForms[number % kForms.size()];
}

EngineOptions engine_options(const LoadedModel& model, const PressureSetting& setting,
                             size_t requests) {
  EngineOptions options;
  options.scheduler.pool_blocks = setting.pool_blocks;
  options.scheduler.max_batch = setting.max_batch;
  options.scheduler.max_queue =
      std::max(options.scheduler.max_queue, static_cast<uint32_t>(2 * requests));
  options.scheduler.step_tokens = setting.step_tokens;
  options.scheduler.max_context = model.decoder().max_context();
  options.scheduler.vocab_size = model.vocab();
  options.scheduler.prefix_cache = setting.prefix_cache;
  options.stall_timeout_us = 3600 * kUsPerSecond;  // the streams are read one after the other
  return options;
}

std::shared_ptr<const Form> compile(FormCache* forms, const std::optional<FormSpec>& spec) {
  if (!spec) return nullptr;
  const Status ready = forms->prepare();
  EXPECT_TRUE(ready.ok()) << ready.message();
  auto form = forms->compile(*spec);
  EXPECT_TRUE(form.ok()) << form.error().message;
  return *form;
}

}  // namespace

PressureLoad::PressureLoad(LoadedModel& model, uint32_t requests, uint32_t longest, uint32_t alone,
                           bool forms)
    : kv_type_(model.kv_type()) {
  Rng rng(20261115);
  const auto random_tokens = [&](uint64_t count) {
    std::vector<TokenId> tokens;
    for (uint64_t i = 0; i < count; ++i) {
      tokens.push_back(static_cast<TokenId>(rng.below(model.vocab())));
    }
    return tokens;
  };
  std::vector<std::vector<TokenId>> beginnings;
  for (int i = 0; i < 4; ++i) beginnings.push_back(random_tokens(rng.between(20, 40)));
  const SystemClock clock;
  auto direct = DirectInference::create(model, clock);
  if (!direct.ok()) {
    ADD_FAILURE() << direct.message();
    return;
  }
  for (uint32_t i = 0; i < requests; ++i) {
    Request request;
    if (rng.chance(1, 2)) request.prompt = beginnings[rng.below(beginnings.size())];
    const std::vector<TokenId> own = random_tokens(rng.between(1, 25));
    request.prompt.insert(request.prompt.end(), own.begin(), own.end());
    request.sampling.temperature = i % 2 == 0 ? 0.0F : 0.9F;
    request.sampling.top_p = i % 4 == 1 ? 0.9F : 1.0F;
    request.sampling.repetition_penalty = i % 8 == 3 ? 1.2F : 1.0F;
    request.sampling.seed = i;
    request.sampling.stop_ids = model.sampling_defaults().stop_ids;
    request.max_tokens = static_cast<uint32_t>(rng.between(longest / 4, longest));
    if (forms) request.form = form_of(i);
    if (i < alone) {
      const auto outcome = (*direct)->generate({request.prompt,
                                                request.sampling,
                                                request.max_tokens,
                                                {},
                                                compile(model.forms(), request.form)},
                                               [&](const SampledToken& token) {
                                                 request.alone.push_back(token.token);
                                                 return true;
                                               });
      EXPECT_TRUE(outcome.ok()) << outcome.message();
      request.ran_alone = true;
    }
    requests_.push_back(std::move(request));
  }
}

// By request; before the first of them comes, so that all press.
std::vector<std::shared_ptr<const Form>> PressureLoad::forms_for(
    const LoadedModel& model, const PressureSetting& setting) const {
  std::unique_ptr<FormCache> small;
  if (setting.form_cache_bytes > 0) {
    small = std::make_unique<FormCache>(model.tokenizer()->tokenizer, model.vocab(),
                                        FormLimits{.automaton_bytes = setting.form_cache_bytes,
                                                   .mask_bytes = setting.form_cache_bytes});
  }
  std::vector<std::shared_ptr<const Form>> forms;
  for (const Request& request : requests_) {
    forms.push_back(compile(small ? small.get() : model.forms(), request.form));
  }
  return forms;
}

PressureReport PressureLoad::run(const std::string& model_path,
                                 const PressureSetting& setting) const {
  PressureReport report;
  ComputePool pool(setting.threads);
  ModelOptions options;
  options.device = setting.device;
  options.isa = setting.isa;
  options.kv_type = kv_type_;
  options.limits = {.rows = setting.step_tokens + setting.max_batch,
                    .logit_rows = setting.max_batch};
  auto loaded = LoadedModel::load(model_path, options, pool);
  if (!loaded.ok()) {
    ADD_FAILURE() << loaded.message();
    return report;
  }
  const std::shared_ptr<LoadedModel> model = std::move(*loaded);
  auto cache = model->make_kv(setting.pool_blocks);
  const SystemClock clock;
  auto engine = BatchInferenceEngine::create(
      std::make_unique<ModelRunner>(model, std::move(*cache), pool, clock,
                                    setting.form_work.value_or(ModelRunner::kFormWork)),
      engine_options(*model, setting, requests_.size()), clock);
  if (!engine.ok()) {
    ADD_FAILURE() << engine.message();
    return report;
  }

  const std::vector<std::shared_ptr<const Form>> forms = forms_for(*model, setting);
  std::vector<RequestHandle> handles;
  for (size_t i = 0; i < requests_.size(); ++i) {
    GenerationRequest wanted;
    wanted.prompt = requests_[i].prompt;
    wanted.sampling = requests_[i].sampling;
    wanted.max_tokens = requests_[i].max_tokens;
    wanted.form = forms[i];
    if (setting.mixed_classes) {
      // The better classes come later, when there is somebody to displace.
      wanted.priority = static_cast<Priority>(2 - i * 3 / requests_.size());
      const uint64_t generated = i * 3 % requests_.size() < 3 ? 20 * (i * 3 / requests_.size()) : 0;
      while ((*engine)->snapshot().scheduler.generated_tokens < generated) {
        std::this_thread::sleep_for(std::chrono::milliseconds(1));
      }
    }
    auto handle = (*engine)->submit(std::move(wanted), {});
    if (!handle.ok()) {
      ADD_FAILURE() << handle.message();
      return report;
    }
    handles.push_back(std::move(*handle));
  }
  StreamChunk chunk;
  for (size_t i = 0; i < handles.size(); ++i) {
    std::vector<TokenId> tokens;
    do {
      handles[i].stream().wait(chunk);
      tokens.insert(tokens.end(), chunk.tokens.begin(), chunk.tokens.end());
    } while (!chunk.end);
    ++report.requests;
    report.answers.push_back(tokens);
    const bool same = !requests_[i].ran_alone || tokens == requests_[i].alone;
    if (same && is_completed(chunk.end->reason)) continue;
    if (report.different++ == 0) {
      report.first_difference =
          fmt::format("request {}: {} tokens, alone {}; ended as {}", i, tokens.size(),
                      requests_[i].alone.size(), name_of(chunk.end->reason));
    }
  }
  report.put_off = (*engine)->snapshot().put_off;
  const SchedulerStats stats = (*engine)->snapshot().scheduler;
  report.preemptions = stats.preemptions;
  report.class_preemptions = stats.class_preemptions;
  report.prefix_hit_tokens = stats.prefix_hit_tokens;
  return report;
}

}  // namespace skein
