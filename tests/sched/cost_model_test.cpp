#include "sched/cost_model.h"

#include <cstdlib>
#include <gtest/gtest.h>
#include <vector>

#include "base/rng.h"

namespace skein {
namespace {

TimeUs truth(const StepLoad& load) {
  return 2'000 + 40 * static_cast<TimeUs>(load.tokens) + static_cast<TimeUs>(load.pairs / 512);
}

StepLoad random_load(Rng& rng) {
  StepLoad load;
  for (uint64_t row = rng.below(16); row > 0; --row) load.add(rng.below(2000), 1);
  if (rng.chance(1, 2)) load.add(rng.below(2000), 1 + rng.below(256));
  if (load.tokens == 0) load.add(0, 1);
  return load;
}

TEST(CostModel, LearnsALinearMachineAndItsChanges) {
  Rng rng(1);
  CostModel model;
  const auto worst_error_percent = [&](TimeUs factor) {
    TimeUs worst = 0;
    for (int i = 0; i < 200; ++i) {
      const StepLoad load = random_load(rng);
      const TimeUs time = factor * truth(load);
      worst = std::max(worst, 100 * std::abs(model.predict(load) - time) / time);
    }
    return worst;
  };
  for (int i = 0; i < 300; ++i) {
    const StepLoad load = random_load(rng);
    model.observe(load, truth(load));
  }
  EXPECT_LE(worst_error_percent(1), 15);
  for (int i = 0; i < 300; ++i) {  // another tenant takes two thirds of the machine
    const StepLoad load = random_load(rng);
    model.observe(load, 3 * truth(load));
  }
  EXPECT_LE(worst_error_percent(3), 15);
}

TEST(CostModel, SurvivesAbsurdMeasurements) {
  CostModel model;
  StepLoad huge;
  huge.tokens = huge.pairs = UINT64_MAX / 2;
  for (TimeUs t : {TimeUs{0}, kNever, TimeUs{-5}, TimeUs{1}, kNever}) {
    model.observe(huge, t);
    model.observe({}, t);
    EXPECT_GE(model.predict(huge), 0);
    EXPECT_GE(model.predict({}), 0);
    model.observe({1, 1}, t);
    EXPECT_GE(model.predict_rows({1, 1}), 0);
    EXPECT_GE(model.predict_rows({3, UINT64_MAX}), 0);
    EXPECT_GE(model.predict_rows(huge), 0);
    EXPECT_GE(model.predict_rows({}), 0);
  }
}

CostModel trained() {
  Rng rng(2);
  CostModel model;
  for (int i = 0; i < 500; ++i) {
    const StepLoad load = random_load(rng);
    model.observe(load, truth(load));
  }
  return model;
}

// A machine that takes rows by twos: the second one of two is all but free.
TimeUs by_twos(uint64_t rows) {
  return 5'000 + 1'000 * static_cast<TimeUs>((rows - 1) / 2) + 50 * static_cast<TimeUs>(rows);
}

CostModel trained_by_twos() {
  CostModel model;
  for (int i = 0; i < 400; ++i) {
    StepLoad load;
    load.add(100, 1 + static_cast<uint64_t>(i) % 8);
    model.observe(load, by_twos(load.tokens));
  }
  return model;
}

TEST(CostModel, StepsOfSampledRowsCostWhatThoseTookLately) {
  CostModel model = trained_by_twos();
  for (uint64_t rows = 1; rows <= 8; ++rows) {
    StepLoad load;
    load.add(100, rows);
    EXPECT_NEAR(static_cast<double>(model.predict_rows(load)), static_cast<double>(by_twos(rows)),
                60)
        << rows << " rows";
  }
  StepLoad more;
  more.add(100, 12);
  // Beyond what was seen a row costs what it did on the way from the fewest to the most.
  EXPECT_NEAR(static_cast<double>(model.predict_rows(more)),
              static_cast<double>(by_twos(8) + (by_twos(8) - by_twos(1)) * 4 / 7), 100);
  EXPECT_EQ(CostModel().predict_rows(more), 0);
}

TimeUs of_rows(const CostModel& model, uint64_t rows) {
  StepLoad load;
  load.add(0, rows);
  return model.predict_rows(load);
}

TEST(CostModel, OneNumberOfRowsSaysSomethingOfOthers) {
  CostModel model;
  for (int i = 0; i < 50; ++i) model.observe({32, 0, 0}, 40'000);
  EXPECT_EQ(of_rows(model, 32), 40'000);
  EXPECT_EQ(of_rows(model, 64), 72'000) << "four fifths of it were rows";
  EXPECT_EQ(of_rows(model, 2), 10'000);
  EXPECT_EQ(of_rows(model, 232), 240'000);
  for (int i = 0; i < 50; ++i) model.observe({31, 0, 0}, 40'000);
  EXPECT_EQ(of_rows(model, 64), 72'000) << "a neighbour's time tells no price of a row";
  for (int i = 0; i < 50; ++i) model.observe({2, 0, 0}, 25'000);
  EXPECT_NEAR(static_cast<double>(of_rows(model, 62)), 55'000, 100) << "but a far one's does";
}

// As a server sees it: prompts, whose rows are cheap, and then a full batch of streams.
CostModel after_prompts(uint32_t streams, TimeUs reading_us, TimeUs row_us) {
  CostModel model;
  for (int i = 0; i < 40; ++i) {
    const uint64_t rows = i % 4 == 3 ? streams + 16 : 256;
    model.observe({rows, rows * 100, rows - 1},
                  reading_us + row_us / 2 * static_cast<TimeUs>(rows));
  }
  for (int i = 0; i < 40; ++i) {
    model.observe({streams, streams * uint64_t{200}, 0}, reading_us + row_us * streams);
  }
  return model;
}

TEST(DraftValue, ARowThatIsSampledCostsMoreThanAPrompts) {
  const auto best = [](uint32_t streams, TimeUs reading_us, TimeUs row_us) {
    const CostModel model = after_prompts(streams, reading_us, row_us);
    StepLoad decodes;
    for (uint32_t i = 0; i < streams; ++i) decodes.add(200, 1);
    DraftValue value(model, decodes, streams);
    for (int i = 0; i < 32; ++i) value.add(201, 960);
    return value.best();
  };
  EXPECT_GT(best(1, 3'000, 600), 4U) << "one stream finds out what rows cost";
  EXPECT_EQ(best(32, 3'000, 600), 0U) << "full steps are rows above all: there is nothing to gain";
  EXPECT_EQ(best(200, 3'000, 600), 0U) << "beyond the rows that are kept";
}

TEST(CostModel, AFigureThatNobodyRenewedIsForgotten) {
  CostModel model;
  const auto observe = [&](uint64_t rows, TimeUs us) {
    StepLoad load;
    load.add(0, rows);
    model.observe(load, us);
  };
  for (int i = 0; i < 50; ++i) observe(1 + static_cast<uint64_t>(i) % 2 * 4, 5'000);
  observe(6, 50'000);
  const TimeUs held_up = of_rows(model, 6);
  EXPECT_GT(held_up, 6'000);
  EXPECT_LT(held_up, 10'000) << "one step that was held up is not believed whole";
  for (int i = 0; i < 1100; ++i) observe(1 + static_cast<uint64_t>(i) % 2 * 4, 5'000);
  EXPECT_NEAR(static_cast<double>(of_rows(model, 6)), 5'000, 100) << "as its neighbours say again";
}

// Of a stair that was measured well, a step in the middle was held up once. By that figure every
// guess beside so many streams would look cheap.
TEST(DraftValue, AStepThatWasHeldUpMakesNoGuessCheap) {
  CostModel model;
  const auto observe = [&](uint64_t rows, TimeUs us) { model.observe({rows, 0, 0}, us); };
  const auto best = [&](uint32_t streams) {
    DraftValue value(model, {streams, 0, 0}, streams);
    for (int i = 0; i < 24; ++i) value.add(0, 900);
    return value.best();
  };
  for (int i = 0; i < 200; ++i) {
    const uint64_t rows = 8 + static_cast<uint64_t>(i) % 5 * 8;  // 8 to 40
    observe(rows, 1'000 + 900 * static_cast<TimeUs>(rows));
  }
  EXPECT_EQ(best(14), 0U);
  observe(14, 50'000);
  EXPECT_LE(of_rows(model, 14), of_rows(model, 16));
  EXPECT_EQ(best(14), 0U);
  EXPECT_EQ(best(15), 0U);
}

TEST(DraftValue, AGuessThatCostsMuchIsWorthItForTheNextThatCostsNothing) {
  const CostModel model = trained_by_twos();
  const auto best = [&](const std::vector<uint16_t>& odds, uint32_t streams = 1) {
    StepLoad decodes;
    for (uint32_t i = 0; i < streams; ++i) decodes.add(100, 1);
    DraftValue value(model, decodes, streams);
    for (const uint16_t each : odds) value.add(101, each);
    return value.best();
  };
  EXPECT_EQ(best({}), 0U);
  EXPECT_EQ(best({200}), 1U) << "the second of two rows is all but free";
  EXPECT_EQ(best({100}), 0U) << "but what is learned from few steps may be wrong";
  EXPECT_EQ(best({900, 100}), 1U) << "the third row costs a sixth of a step";
  EXPECT_EQ(best({900, 250, 240}), 3U) << "but the fourth nothing";
  EXPECT_EQ(best({100}, 2), 0U);
  EXPECT_EQ(best({1000, 1000, 1000}, 2), 3U) << "what is certain always pays";
}

// Of many numbers of rows that were timed on a busy machine one was lucky.
TEST(CostModel, FewerRowsNeverTakeMore) {
  CostModel model;
  for (int i = 0; i < 200; ++i) {
    const uint64_t rows = 32 + static_cast<uint64_t>(i) % 4;
    StepLoad load;
    load.add(100, rows);
    model.observe(load, rows == 34 ? 30'000 : 40'000);
  }
  StepLoad decodes;
  decodes.add(100, 32);
  StepLoad lucky;
  lucky.add(100, 34);
  EXPECT_GE(model.predict_rows(lucky), model.predict_rows(decodes));
  DraftValue value(model, decodes, 32);
  value.add(101, 250);
  value.add(101, 250);
  EXPECT_EQ(value.best(), 0U);
}

TEST(DraftValue, AsLongAsNothingIsKnownEverythingPays) {
  const CostModel model;
  StepLoad decodes;
  decodes.add(100, 1);
  DraftValue value(model, decodes, 1);
  for (int i = 0; i < 5; ++i) value.add(101, 10);
  EXPECT_EQ(value.best(), 5U);
}

TEST(StepBudget, PrefillGetsWhatDecodesLeave) {
  const CostModel model;
  StepLoad decodes;
  for (int i = 0; i < 24; ++i) decodes.add(100, 1);
  StepBudget budget(model, {.tokens = 256}, decodes);
  EXPECT_EQ(budget.fit(0, 1000), 232u);
  budget.spend(0, 200);
  EXPECT_EQ(budget.fit(0, 1000), 32u);
  budget.spend(0, 32);
  EXPECT_TRUE(budget.spent());
  EXPECT_EQ(budget.fit(0, 5), 0u);
}

TEST(StepBudget, ALongPromptStillEndsWhenDecodesFillTheStep) {
  const CostModel model;
  StepLoad decodes;
  for (int i = 0; i < 300; ++i) decodes.add(100, 1);
  EXPECT_EQ(StepBudget(model, {.tokens = 256}, decodes).fit(0, 1000), 16u);
  EXPECT_EQ(StepBudget(model, {.tokens = 4}, decodes).fit(0, 1000), 4u);
}

TEST(StepBudget, KeepsToTheTargetBetweenTokens) {
  const CostModel model = trained();
  StepLoad decodes;
  for (int i = 0; i < 8; ++i) decodes.add(500, 1);
  const TimeUs target = 8'000;
  const uint32_t fits = StepBudget(model, {4096, target, 0}, decodes).fit(1000, 4096);
  StepLoad step = decodes;
  step.add(1000, fits);
  EXPECT_GT(fits, 50u);
  EXPECT_LE(truth(step), target * 12 / 10);
  EXPECT_GE(truth(step), target * 7 / 10) << "and does not waste the step";
  // Nobody streams: nobody to protect, unless somebody may come.
  EXPECT_EQ(StepBudget(model, {4096, target, 250}, {}).fit(1000, 4096, Spares::kNobody), 4096u);
  EXPECT_LT(StepBudget(model, {4096, target, 250}, {}).fit(1000, 4096, Spares::kAsker), 4096u);
  EXPECT_EQ(StepBudget(model, {4096, target, 0}, {}).fit(1000, 4096, Spares::kAsker), 4096u);
  // A target that decodes alone exceed still lets prefill move.
  EXPECT_EQ(StepBudget(model, {4096, 1, 250}, decodes).fit(1000, 4096), 16u);
}

TEST(CostModel, OneStepThatWasHeldUpIsNoRule) {
  CostModel model = trained();
  StepLoad load;
  for (int i = 0; i < 8; ++i) load.add(500, 1);
  load.add(0, 64);
  model.observe(load, 20 * truth(load));
  EXPECT_LE(model.predict(load), truth(load) * 3 / 2);
  for (int i = 0; i < 20; ++i) model.observe(load, 20 * truth(load));
  EXPECT_GE(model.predict(load), truth(load) * 18) << "but many are";
}

// A long prompt behind the same streams, chunk by chunk, again and again: only its depth changes.
TEST(StepBudget, StreamsAreSparedWhilePromptsKeepComing) {
  StepLoad decodes;
  for (int i = 0; i < 32; ++i) decodes.add(200, 1);
  const auto time_of = [](const StepLoad& load) { return 5 * truth(load); };
  CostModel model;
  for (int i = 0; i < 20; ++i) model.observe(decodes, time_of(decodes));
  for (int prompt = 0; prompt < 10; ++prompt) {
    for (uint32_t at = 0; at < 4000;) {
      StepLoad step = decodes;
      const uint32_t count = StepBudget(model, {1 << 20, 0, 600}, decodes).fit(at, 4000 - at);
      step.add(at, count);
      model.observe(step, time_of(step));
      at += count;
      if (prompt == 0) continue;
      EXPECT_LE(time_of(step), time_of(decodes) * 7) << "at " << at;
    }
  }
}

TEST(StepBudget, ASlowdownIsMeasuredByWhatStreamsTakeAlone) {
  const CostModel model = trained();
  StepLoad few, many;
  few.add(500, 1);
  for (int i = 0; i < 3000; ++i) many.add(500, 1);
  ASSERT_GT(truth(many), kUnnoticedUs);
  const auto step_of = [&](const StepLoad& decodes) {
    StepLoad step = decodes;
    step.add(1000, StepBudget(model, {1 << 20, 0, 250}, decodes).fit(1000, 1 << 20));
    return truth(step);
  };
  EXPECT_GE(step_of(few), kUnnoticedUs * 7 / 10) << "short steps are not worth protecting";
  EXPECT_LE(step_of(few), kUnnoticedUs * 12 / 10);
  EXPECT_GE(step_of(many), truth(many) * 18 / 10);
  EXPECT_LE(step_of(many), truth(many) * 3);
  // The stricter one of both.
  StepLoad step = few;
  step.add(1000, StepBudget(model, {1 << 20, 8'000, 250}, few).fit(1000, 1 << 20));
  EXPECT_LE(truth(step), 8'000 * 12 / 10);
}

}  // namespace
}  // namespace skein
