#include "backend/cuda/strip_products.cuh"

namespace skein::cuda {

const PackedProducts& products_of_4_bits(bool halves, bool has_table) {
  if (has_table) return StripProducts<LongCodes<4, false, true>>::kProducts;
  return halves ? StripProducts<LongCodes<4, true>>::kProducts
                : StripProducts<LongCodes<4, false>>::kProducts;
}

}  // namespace skein::cuda
