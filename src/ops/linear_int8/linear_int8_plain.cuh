/** linear_int8 without tensor cores, by products of bytes with digits of x: the whole entry `any`,
 * and what later entries do not take. */
#ifndef TGI_OPS_LINEAR_INT8_PLAIN_CUH
#define TGI_OPS_LINEAR_INT8_PLAIN_CUH

#include "ops/kernels.cuh"

inline namespace TGI_CUDA_ENTRY
{

size_t linear_int8_plain_bytes(const tg_linear_int8_fwd_args *a);
tg_status linear_int8_plain(const tg_context *ctx, const tg_linear_int8_fwd_args *a);
void tell_linear_int8_plain(const tg_linear_int8_fwd_args *a, char *text, size_t bytes);

} // namespace TGI_CUDA_ENTRY

#endif
