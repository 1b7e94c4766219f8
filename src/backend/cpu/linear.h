// Products of activation rows with matrices, over all threads.
#pragma once

#include <cstddef>
#include <memory>
#include <span>
#include <vector>

#include "backend/backend.h"
#include "backend/cpu/cpu_matrix.h"
#include "backend/cpu/scratch.h"
#include "backend/cpu/workers.h"

namespace skein::cpu {

class Linear {
 public:
  Linear(Workers& workers, const KernelTable& kernels)
      : workers_(workers), kernels_(kernels), panels_(workers.slots()) {}

  // Takes the memory that products with a matrix of so many inputs need.
  Status prepare(const CpuMatrix& matrix);

  void multiply(Rows x, const CpuMatrix& matrix, const float* bias, Rows out);
  // As Backend::expert_linear; the rows of an expert are multiplied together.
  void multiply_experts(Rows x, std::span<const std::unique_ptr<Matrix>> experts,
                        const float* biases, const Routes& routes, Rows out);

 private:
  // Rows of x that go through one matrix: entries [begin, end) of x_ and out_.
  struct Group {
    const CpuMatrix* matrix;
    const float* bias;
    size_t begin, end;
  };

  void run_groups(size_t outputs, size_t inputs);
  void run_chunk(const Group& group, size_t first_output, size_t outputs, float* panel) const;

  Workers& workers_;
  const KernelTable& kernels_;
  Scratch panels_;
  // Of the op under way; they keep their capacity.
  std::vector<const float*> x_;
  std::vector<float*> out_;
  std::vector<Group> groups_;
  std::vector<size_t> expert_begin_;
};

}  // namespace skein::cpu
