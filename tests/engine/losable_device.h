// A device that can be lost, without one: the CPU's arithmetic behind the seam of backends. Like a
// real one it is lost to every backend over it, stays so until they and all that they made are
// gone, and forgets what was in its memory.
#pragma once

#include <algorithm>
#include <atomic>
#include <deque>
#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "backend/backend.h"
#include "backend/registry.h"
#include "engine/drawn.h"

namespace skein::testing {

class LosableDevice final : public ComputeDevice {
 public:
  const std::string& id() const override { return id_; }
  const std::string& name() const override { return name_; }
  Memory memory() const override { return {kTotal, kTotal - 1000 * backends}; }
  bool is_lost() const override { return lost_; }
  uint64_t times_lost() const override { return times_; }

  // After so many more passes; 0: the next one.
  void lose_after(int64_t passes) { passes_left_ = passes; }
  void lose() {
    if (!lost_.exchange(true)) ++times_;
  }
  void find() { lost_ = false; }

  void pass() {
    if (passes_left_ >= 0 && passes_left_-- == 0) lose();
    check();
  }
  void check() const {
    if (lost_) throw BackendLost("the device fell off the bus");
  }

  static constexpr uint64_t kTotal = uint64_t{8} << 30;
  // Held by whoever has something there that a backend made.
  static std::shared_ptr<void> hold(const std::shared_ptr<LosableDevice>& device) {
    ++device->holders_;
    return {nullptr, [device](void*) { --device->holders_; }};
  }
  uint64_t users() const { return backends + holders_; }

  std::atomic<uint64_t> backends{0};
  std::atomic<uint64_t> tables_bytes{0};  // that a table takes
  std::atomic<bool> comes_back{true};
  std::atomic<bool> queues_draws{false};  // steps may be started behind others
  std::atomic<uint64_t> awaited{0};       // tokens that a step took from the one before

 private:
  const std::string id_ = "fake:0", name_ = "A device of tests";
  std::atomic<bool> lost_{false};
  std::atomic<uint64_t> times_{0};
  std::atomic<int64_t> passes_left_{-1};
  std::atomic<uint64_t> holders_{0};
};

class LosableBackend final : public Backend {
 public:
  LosableBackend(std::shared_ptr<LosableDevice> device, std::unique_ptr<Backend> real)
      : device_(std::move(device)), real_(std::move(real)) {
    ++device_->backends;
  }
  ~LosableBackend() override { --device_->backends; }

  // For ModelOptions. A device that was lost is found again when nobody is on it.
  static auto maker(const std::shared_ptr<LosableDevice>& device) {
    return [device](const BackendOptions& options,
                    ComputePool& pool) -> Result<std::unique_ptr<Backend>> {
      if (device->is_lost()) {
        if (device->users() > 0) return unavailable("{} are still there", device->users());
        if (!device->comes_back) return unavailable("the device stays away");
        device->find();
      }
      BackendOptions cpu = options;
      cpu.device = "cpu";
      SKEIN_ASSIGN(auto real, make_backend(cpu, pool));
      return std::unique_ptr<Backend>(std::make_unique<LosableBackend>(device, std::move(real)));
    };
  }

  std::string_view name() const override { return "fake"; }
  std::shared_ptr<const ComputeDevice> device() const override { return device_; }

  uint64_t available() const override { return LosableDevice::kTotal; }
  Result<Buffer> allocate(size_t bytes) override { return here().allocate(bytes); }
  void write(Floats to, std::span<const float> from) override { here().write(to, from); }
  HostRows read(Rows rows) override { return here().read(rows); }
  VocabularyScan scan() const override { return real_->scan(); }
  Result<std::unique_ptr<DrawQueue>> make_draw_queue(size_t, size_t, uint32_t) override {
    std::unique_ptr<DrawQueue> made;
    if (device_->queues_draws) made = std::make_unique<Peaks>(*this);
    return made;
  }
  using Backend::make_matrix;
  Result<std::unique_ptr<Matrix>> make_matrix(std::span<const WeightView> parts,
                                              const Consumed& consumed) override {
    return here().make_matrix(parts, consumed);
  }
  Result<std::unique_ptr<Matrix>> make_table(std::span<const WeightView> parts) override {
    return here().make_table(parts);
  }
  uint64_t matrix_bytes(std::span<const WeightView> parts) const override {
    return real_->matrix_bytes(parts);
  }
  uint64_t table_bytes(std::span<const WeightView>) const override { return device_->tables_bytes; }
  Status reserve(uint64_t bytes) override { return here().reserve(bytes); }
  Result<std::unique_ptr<Rope>> make_rope(std::span<const float> frequencies,
                                          float magnitude) override {
    return here().make_rope(frequencies, magnitude);
  }
  Result<std::unique_ptr<Routes>> make_routes(size_t rows, uint32_t used) override {
    return here().make_routes(rows, used);
  }
  Result<std::unique_ptr<KvCache>> make_kv(const KvSpec& spec, uint32_t blocks) override {
    return here().make_kv(spec, blocks);
  }
  uint64_t kv_block_bytes(const KvSpec& spec) const override { return real_->kv_block_bytes(spec); }

  Step begin(std::span<const TokenId> tokens, std::span<const Sequence> sequences,
             std::span<const uint32_t> logit_rows, const DrawQueue* before) override {
    if (before == nullptr) return here().begin(tokens, sequences, logit_rows);
    fed_.assign(tokens.begin(), tokens.end());
    for (TokenId& token : fed_) {
      if (token < 0) token = static_cast<const Peaks*>(before)->token(~token);
    }
    return here().begin(fed_, sequences, logit_rows);
  }
  void run(const Step& step, uint64_t key, FunctionRef<void()> ops) override {
    device_->pass();
    real_->run(step, key, ops);
  }
  void embed(const Matrix& table, const Step& step, float scale, Rows out) override {
    here().embed(table, step, scale, out);
  }
  void norm(Rows x, const NormParams& params, Rows out) override { here().norm(x, params, out); }
  void linear(const LinearInput& in, const Matrix& matrix, Floats bias, Rows out) override {
    here().linear(in, matrix, bias, out);
  }
  void add(Rows x, Rows delta, float scale) override { here().add(x, delta, scale); }
  void activate(Rows x, const ActivationParams& params, Rows out) override {
    here().activate(x, params, out);
  }
  void rope_angles(const Step& step, const Rope& rope, Rows out) override {
    here().rope_angles(step, rope, out);
  }
  void attend(Rows q, Rows k, Rows v, const QkTransform& transform, const Step& step,
              KvCache& cache, uint32_t layer, const AttentionParams& params, Rows out) override {
    here().attend(q, k, v, transform, step, cache, layer, params, out);
  }
  void route(Rows x, RouterKind kind, Routes& routes) override { here().route(x, kind, routes); }
  void expert_linear(Rows x, std::span<const std::unique_ptr<Matrix>> experts, Floats biases,
                     const Routes& routes, Rows out) override {
    here().expert_linear(x, experts, biases, routes, out);
  }
  void combine(Rows x, const Routes& routes, Rows out) override { here().combine(x, routes, out); }
  void gather(Rows x, const Step& step, Rows out) override { here().gather(x, step, out); }
  void finish_logits(Rows x, float scale, float softcap) override {
    here().finish_logits(x, scale, softcap);
  }

 private:
  Backend& here() {
    device_->check();
    return *real_;
  }

  // What was found is told when it is asked for, as a real device's is.
  class Peaks final : public DrawQueue {
   public:
    explicit Peaks(LosableBackend& backend) : backend_(backend) {}
    void find(Rows rows, std::span<const Draw> draws) override {
      const HostRows all = backend_.here().read(rows);
      std::vector<VocabularyScan::Argmax>& found = searches_.emplace_back();
      for (size_t i = 0; i < rows.rows; ++i) {
        const std::span<const float> row = all.row(i).first(rows.width);
        found.push_back(backend_.scan().argmax(row));
        if (!draws.empty())
          found.back().index = static_cast<size_t>(drawn_from(row, draws[i], backend_.scan()));
      }
      latest_ = found;
    }
    void take(std::span<VocabularyScan::Argmax> out) override {
      backend_.device_->check();
      std::copy(searches_.front().begin(), searches_.front().end(), out.begin());
      searches_.pop_front();
    }
    TokenId token(int32_t row) const {
      ++backend_.device_->awaited;
      return static_cast<TokenId>(latest_.at(static_cast<size_t>(row)).index);
    }

   private:
    LosableBackend& backend_;
    std::deque<std::vector<VocabularyScan::Argmax>> searches_;
    std::vector<VocabularyScan::Argmax> latest_;
  };

  const std::shared_ptr<LosableDevice> device_;
  const std::unique_ptr<Backend> real_;
  std::vector<TokenId> fed_;
};

}  // namespace skein::testing
