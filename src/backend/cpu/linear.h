// Products of activation rows with matrices, over all threads.
#pragma once

#include <cstddef>
#include <memory>
#include <span>
#include <vector>

#include "backend/backend.h"
#include "backend/cpu/cpu_matrix.h"
#include "backend/cpu/linear_kernels.h"
#include "backend/cpu/scratch.h"
#include "backend/cpu/workers.h"
#include "backend/host/routing.h"

namespace skein::cpu {

class Linear {
 public:
  Linear(Workers& workers, const KernelTable& kernels, const LinearKernels& packed_kernels)
      : workers_(workers),
        kernels_(kernels),
        packed_kernels_(packed_kernels),
        panels_(workers.slots()),
        rows_(workers.slots()),
        plain_(1),
        quantized_(1),
        rounded_(1),
        outliers_(1),
        residuals_(1) {}

  // Takes the memory that products with a matrix of so many inputs need.
  Status prepare(const CpuMatrix& matrix);

  void multiply(const LinearInput& in, const CpuMatrix& matrix, const float* bias, Rows out);
  // As Backend::expert_linear; the rows of an expert are multiplied together.
  void multiply_experts(Rows x, std::span<const std::unique_ptr<Matrix>> experts,
                        const float* biases, const HostRoutes& routes, Rows out);

 private:
  // Rows of x that go through one matrix: entries [begin, end) of x_ and out_.
  struct Group {
    const CpuMatrix* matrix;
    const float* bias;
    size_t begin, end;
    size_t first_tile;  // of the prepared activations
  };
  // The place of an entry of x_ in them.
  struct Place {
    size_t tile, row;
  };
  // Row blocks of one part, for one worker.
  struct Item {
    const Group* group;
    const PackedPart* part;
    size_t first, count;
  };

  void run_groups(size_t outputs, size_t inputs);
  void run_chunk(const Group& group, size_t first_output, size_t outputs, float* panel) const;
  void run_packed(size_t outputs, size_t inputs);
  void place_activations(size_t inputs);
  const float* changed_row(size_t entry, float* memory) const;
  void prepare_row(size_t entry, size_t inputs, const float* x);
  void list_items();
  void run_item(const Item& item, size_t inputs) const;
  void run_quantized_item(const Item& item, size_t groups) const;
  template <class Record>
  void run_item(const Item& item, size_t groups, const Record* records) const;

  QuantizedRecord* quantized() const {
    return reinterpret_cast<QuantizedRecord*>(quantized_.slot(0));
  }
  Bf16Record* rounded() const { return reinterpret_cast<Bf16Record*>(rounded_.slot(0)); }
  // The outliers of entry `i` of x_.
  Outlier* outliers(size_t i, size_t groups) const {
    return reinterpret_cast<Outlier*>(outliers_.slot(0)) + i * most_outliers(groups);
  }
  // The residuals of entry `i` of x_.
  Bf16Residual* residuals(size_t i, size_t groups) const {
    return reinterpret_cast<Bf16Residual*>(residuals_.slot(0)) + i * most_residuals(groups);
  }

  Workers& workers_;
  const KernelTable& kernels_;
  const LinearKernels& packed_kernels_;
  Scratch panels_;
  Scratch rows_;   // a row of a slot, as LinearInput changes it
  Scratch plain_;  // all rows so, where they are multiplied as they are
  // The activations, for the product types that want them.
  Scratch quantized_, rounded_, outliers_, residuals_;
  // These are of the op under way; they keep their capacity.
  const LinearInput* input_ = nullptr;  // that changes rows; else nullptr
  bool quantizes_ = false, rounds_ = false;
  std::vector<const float*> x_;
  std::vector<float*> out_;
  std::vector<size_t> outlier_counts_, residual_counts_;
  std::vector<Group> groups_;
  std::vector<Place> places_;
  std::vector<Item> items_;
  std::vector<size_t> expert_begin_;
};

}  // namespace skein::cpu
