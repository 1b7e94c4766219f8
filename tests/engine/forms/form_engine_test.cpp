// Forms through whole engines over a real model: batched, one at a time, cut, handed over.
#include <algorithm>
#include <gmock/gmock.h>

#include "engine/forms/form_helpers.h"
#include "engine/manager_fixture.h"
#include "format/test_folder.h"

namespace skein {
namespace {

using testing::regex_form;
using testing::schema_form;

const char* const kObject =
    R"({"type":"object","properties":{"a":{"type":"string","maxLength":12},"b":{"type":"integer"}},)"
    R"("required":["a","b"]})";

// Loses its device when the first step is computed and sampled, before anybody has seen a token.
class LosingRunner final : public StepRunner {
 public:
  explicit LosingRunner(std::unique_ptr<StepRunner> real) : real_(std::move(real)) {}
  std::optional<SamplerScratch> patient_scratch() const override {
    return real_->patient_scratch();
  }
  void start(std::span<const Segment> segments,
             std::span<const RequestSampler* const> samplers) override {
    real_->start(segments, samplers);
  }
  TimeUs finish(const StepOutput& output) override {
    real_->finish(output);
    throw RunnerLost("the device is gone");
  }

 private:
  std::unique_ptr<StepRunner> real_;
};

class FormEngineTest : public ManagerTest {
 protected:
  ModelLease model(const char* id = "tiny") {
    if (!manager_) start();
    EXPECT_TRUE(manager_->add({.id = id, .path = path_}).ok());
    return manager_->acquire(id).value();
  }
  static GenerationRequest wanted(ModelLease& lease, const FormSpec& spec, float temperature,
                                  uint64_t seed = 5) {
    GenerationRequest wanted = request(20, 200, seed);
    wanted.sampling.temperature = temperature;
    wanted.sampling.stop_ids = lease->model().sampling_defaults().stop_ids;
    FormCache& forms = *lease->model().forms();
    EXPECT_TRUE(forms.prepare().ok());
    auto form = forms.compile(spec);
    EXPECT_TRUE(form.ok()) << form.error().message;
    wanted.form = *form;
    return wanted;
  }
  static Answer answer(ModelLease& lease, GenerationRequest wanted) {
    RequestHandle handle = lease->submit(std::move(wanted), {}).value();
    return read(handle);
  }
  static std::string text_of(const Answer& answer) {
    return std::string(answer.tokens.begin(), answer.tokens.end());
  }

  const testing::TestFolder folder_;
  const std::string path_ = testing::write_tiny_model(folder_);
};

TEST_F(FormEngineTest, AnAnswerIsTheSameWithAndWithoutBatching) {
  ModelLease batched = model();
  change_ = [](ServedModelParts& parts) { parts.enable_batching = false; };
  ModelLease direct = model("direct");
  for (const float temperature : {0.0F, 1.2F}) {
    for (const FormSpec& spec : {regex_form("[a-f]{6}"), schema_form(kObject)}) {
      const Answer first = answer(batched, wanted(batched, spec, temperature));
      EXPECT_EQ(first.end.reason, FinishReason::kStop) << first.end.status.message();
      EXPECT_EQ(answer(direct, wanted(direct, spec, temperature)).tokens, first.tokens);
      if (spec.kind == FormSpec::Kind::kRegex) {
        EXPECT_THAT(text_of(first), ::testing::MatchesRegex("[a-f]+"));
        EXPECT_EQ(first.tokens.size(), 6U);
      } else {
        EXPECT_TRUE(nlohmann::json::accept(text_of(first))) << text_of(first);
      }
    }
  }
  EXPECT_GT(batched->snapshot().forms.mask_ns.sum, 0U);
  EXPECT_EQ(batched->snapshot().forms.misses, 2U);
  EXPECT_EQ(batched->snapshot().forms.hits, 2U);
}

TEST_F(FormEngineTest, ARequestThatIsHandedOverBeginsItsFormAnew) {
  ModelLease sound = model();
  const Answer expected = answer(sound, wanted(sound, schema_form(kObject), 1));
  change_ = [](ServedModelParts& parts) {
    parts.make_runner = [real = parts.make_runner]() -> Result<std::unique_ptr<StepRunner>> {
      SKEIN_ASSIGN(auto runner, real());
      return std::unique_ptr<StepRunner>(std::make_unique<LosingRunner>(std::move(runner)));
    };
  };
  ModelLease losing = model("losing");
  const Answer after = answer(losing, wanted(losing, schema_form(kObject), 1));
  EXPECT_EQ(after.end.reason, FinishReason::kStop) << after.end.status.message();
  EXPECT_EQ(after.tokens, expected.tokens);
}

TEST_F(FormEngineTest, CutAnywhereItIsTheBeginningOfTheWholeAnswer) {
  ModelLease lease = model();
  for (const float temperature : {0.0F, 1.0F}) {
    const Answer whole = answer(lease, wanted(lease, schema_form(kObject), temperature));
    ASSERT_EQ(whole.end.reason, FinishReason::kStop);
    for (uint32_t cut = 1; cut <= whole.tokens.size(); ++cut) {
      GenerationRequest shorter = wanted(lease, schema_form(kObject), temperature);
      shorter.max_tokens = cut;
      const Answer part = answer(lease, std::move(shorter));
      ASSERT_EQ(part.tokens.size(), cut);
      EXPECT_TRUE(std::equal(part.tokens.begin(), part.tokens.end(), whole.tokens.begin()));
      const bool complete = cut == whole.tokens.size();
      EXPECT_EQ(part.end.reason, complete ? FinishReason::kStop : FinishReason::kLength) << cut;
    }
  }
}

TEST_F(FormEngineTest, ChoicesOfOneRequestShareAFormAndNothingElse) {
  ModelLease lease = model();
  std::vector<RequestHandle> handles;
  for (uint32_t choice = 0; choice < 4; ++choice) {
    GenerationRequest one = wanted(lease, schema_form(kObject), 1.2F);
    one.sampling.choice = choice;
    handles.push_back(lease->submit(std::move(one), {}).value());
  }
  std::vector<std::string> texts;
  for (RequestHandle& handle : handles) {
    texts.push_back(text_of(read(handle)));
    EXPECT_TRUE(nlohmann::json::accept(texts.back())) << texts.back();
  }
  std::sort(texts.begin(), texts.end());
  EXPECT_EQ(std::unique(texts.begin(), texts.end()), texts.end());
}

TEST_F(FormEngineTest, ARequestWithNoTokenLeftFailsAlone) {
  ModelLease lease = model();
  GenerationRequest banned = wanted(lease, regex_form("a{2,9}"), 0);
  banned.sampling.banned = {'a'};
  GenerationRequest sound = wanted(lease, regex_form("a{2}"), 0);
  RequestHandle first = lease->submit(std::move(banned), {}).value();
  RequestHandle second = lease->submit(std::move(sound), {}).value();
  const Answer failed = read(first);
  EXPECT_EQ(failed.end.reason, FinishReason::kError);
  EXPECT_EQ(failed.end.status.code(), Code::kInvalidArgument);
  EXPECT_EQ(text_of(read(second)), "aa");
}

}  // namespace
}  // namespace skein
