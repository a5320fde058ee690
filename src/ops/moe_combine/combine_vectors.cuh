/** What combine's forward and backward on CUDA share: slots of tokens, whole vectors. */
#ifndef TGI_OPS_COMBINE_VECTORS_CUH
#define TGI_OPS_COMBINE_VECTORS_CUH

#include "cuda/fault.cuh"
#include "cuda/reduce.cuh"
#include "cuda/vec.cuh"
#include "ops/kernels.cuh"

#include <math_constants.h>

inline namespace TGI_CUDA_ENTRY
{

constexpr int kCombineThreads = 256;

#define TGI_COMBINE_ROWS(entry) TGI_CUDA_JOIN(tgi_combine_rows_, entry)

/** The rows and weights of each token's k slots. By value to kernels. */
template <typename T> struct combine_slots {
  const int32_t *rows;
  const void *weights; /* NULL: 1 */
  int64_t row_step, weight_step;
  int k;
  bool wide; /* weights are f32 */

  __device__ __forceinline__ int64_t row(int64_t t, int j) const
  {
    return rows[t * row_step + j];
  }

  __device__ __forceinline__ float weight(int64_t t, int j) const
  {
    const int64_t i = t * weight_step + j;
    return !weights ? 1.0f
           : wide   ? static_cast<const float *>(weights)[i]
                    : to_f32(static_cast<const T *>(weights)[i]);
  }
};

template <typename T>
combine_slots<T> combine_slots_of(const tg_tensor *row, const tg_tensor *weights)
{
  const bool weighted = tgi_present(weights);
  combine_slots<T> s = {};
  s.rows = static_cast<const int32_t *>(row->data);
  s.weights = weighted ? weights->data : NULL;
  s.row_step = tgi_stride(row, 0);
  s.weight_step = weighted ? tgi_stride(weights, 0) : 0;
  s.k = (int)row->shape[1];
  s.wide = weights->dtype == TG_F32;
  return s;
}

/** Whether the rows are whole vectors of 16 bytes at aligned addresses. */
inline bool whole_vectors(const tg_tensor *t)
{
  return t->shape[1] * (int64_t)tg_dtype_bytes(t->dtype) % 16 == 0 && rows_aligned(t, 16);
}

/** The forward, also within another op, whose argument stands for row in the record of an index out
 * of range. Defined in moe_combine.cu. The entry sm90 has no kernel of it and takes that of sm80,
 * through a function of C with the numbers of the argument. */
#if TGI_VIRTUAL >= 90
extern "C" tg_status TGI_COMBINE_ROWS(sm80)(const tg_context *ctx, const tg_moe_combine_fwd_args *a,
                                            int row, int slot);

inline tg_status run_moe_combine_fwd(const tg_context *ctx, const tg_moe_combine_fwd_args *a,
                                     fault_site bad_row)
{
  return TGI_COMBINE_ROWS(sm80)(ctx, a, bad_row.row, bad_row.slot);
}
#else
tg_status run_moe_combine_fwd(const tg_context *ctx, const tg_moe_combine_fwd_args *a,
                              fault_site bad_row);
#endif

} // namespace TGI_CUDA_ENTRY

#endif
