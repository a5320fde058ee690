/* The decoder of llama32_1b; see decode_kernel.cuh. */
#include "cuda/decode/decode_kernel.cuh"

extern "C" tgi_decode_instance tgi_decode_llama32_1b(void)
{
  return decode_instance_of<llama32_1b>();
}
