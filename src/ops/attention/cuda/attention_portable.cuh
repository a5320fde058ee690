/** Attention without tensor cores (attention.cu, attention_bwd.cu), which serves every call of the
 * contract: the whole entry `any`, and in sm80 what attention_sm80.cu and attention_bwd_sm80.cu do
 * not take. */
#ifndef TGI_OPS_ATTENTION_PORTABLE_CUH
#define TGI_OPS_ATTENTION_PORTABLE_CUH

#include "ops/kernels.cuh"

inline namespace TGI_CUDA_ENTRY
{

size_t plain_attention_fwd_bytes(const tg_attention_fwd_args *a);
tg_status run_plain_attention_fwd(const tg_context *ctx, const tg_attention_fwd_args *a);
void tell_plain_attention_fwd(const tg_attention_fwd_args *a, char *text, size_t bytes);

size_t plain_attention_bwd_bytes(const tg_attention_bwd_args *a);
tg_status run_plain_attention_bwd(const tg_context *ctx, const tg_attention_bwd_args *a);
void tell_plain_attention_bwd(const tg_attention_bwd_args *a, char *text, size_t bytes);

} // namespace TGI_CUDA_ENTRY

/** Defines the entry's functions of an op and direction, in the entry that has no other kernel. */
#if TGI_VIRTUAL < 80
#define PLAIN_ATTENTION_ENTRY(op_dir)                                                              \
  extern "C" size_t TGI_WORKSPACE(op_dir)(const tg_context *, const tg_##op_dir##_args *a)         \
  {                                                                                                \
    return plain_##op_dir##_bytes(a);                                                              \
  }                                                                                                \
  extern "C" tg_status TGI_KERNEL(op_dir)(const tg_context *ctx, const tg_##op_dir##_args *a)      \
  {                                                                                                \
    return run_plain_##op_dir(ctx, a);                                                             \
  }                                                                                                \
  extern "C" void TGI_PLAN(op_dir)(const tg_context *, const tg_##op_dir##_args *a, char *text,    \
                                   size_t bytes)                                                   \
  {                                                                                                \
    tell_plain_##op_dir(a, text, bytes);                                                           \
  }
#else
#define PLAIN_ATTENTION_ENTRY(op_dir)
#endif

#endif
