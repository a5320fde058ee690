/* The decoder of gpt2_124m; see decode_kernel.cuh. */
#include "cuda/decode/decode_kernel.cuh"

extern "C" tgi_decode_instance tgi_decode_gpt2_124m(void)
{
  return decode_instance_of<gpt2_124m>();
}
