#include "backend/cuda/products.cuh"

namespace skein::cuda {

const PackedProducts& products_of_8_bits() {
  using Own = ProductsOf<8>;
  static constexpr PackedProducts kProducts = {Own::set_up, Own::multiply, Own::multiply_experts};
  return kProducts;
}

}  // namespace skein::cuda
