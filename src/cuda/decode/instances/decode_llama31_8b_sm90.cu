/* The decoder of llama31_8b; see decode_kernel.cuh. */
#include "cuda/decode/decode_kernel.cuh"

extern "C" tgi_decode_instance tgi_decode_llama31_8b(void)
{
  return decode_instance_of<llama31_8b>();
}
