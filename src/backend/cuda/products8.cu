#include "backend/cuda/strip_products.cuh"

namespace skein::cuda {

const PackedProducts& products_of_8_bits(bool halves) {
  return halves ? StripProducts<LongCodes<8, true>>::kProducts
                : StripProducts<LongCodes<8, false>>::kProducts;
}

}  // namespace skein::cuda
