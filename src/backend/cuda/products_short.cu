#include "backend/cuda/strip_products.cuh"

namespace skein::cuda {

const PackedProducts& products_of_short_scales(bool low) {
  return low ? StripProducts<ShortCodes<true>>::kProducts
             : StripProducts<ShortCodes<false>>::kProducts;
}

}  // namespace skein::cuda
