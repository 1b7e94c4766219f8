#include "backend/cuda/products.cuh"

namespace skein::cuda {

const PackedProducts& products_of_4_bits() {
  using Own = ProductsOf<4>;
  static constexpr PackedProducts kProducts = {Own::set_up, Own::multiply, Own::multiply_experts};
  return kProducts;
}

}  // namespace skein::cuda
