/* The decoder of qwen3_8b; see decode_kernel.cuh. */
#include "cuda/decode/decode_kernel.cuh"

extern "C" tgi_decode_instance tgi_decode_qwen3_8b(void)
{
  return decode_instance_of<qwen3_8b>();
}
