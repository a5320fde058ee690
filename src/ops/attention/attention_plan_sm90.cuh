/** How attention runs on Hopper's tensor cores: decided on the host, from a call's shapes and the
 * number of multiprocessors alone. */
#ifndef TGI_OPS_ATTENTION_PLAN_SM90_CUH
#define TGI_OPS_ATTENTION_PLAN_SM90_CUH

#include "cuda/launch.cuh"

extern "C" {
#include "ops/attention/attention_layout.h"
}

inline namespace TGI_CUDA_ENTRY
{

struct attention_fwd_plan {
  bool taken;
  tgi_attention_layout l;
  int window;     /* 0 where it hides nothing */
  int qk, values; /* elements of a head that products take */
  int rows, keys; /* of a tile */
  int sides;      /* 1: all keys up to some last one are seen; 2: from some first one on */
  bool lengths;   /* some are on the device: the tiles are listed there */
  bool longest_first, counted; /* counted: blocks take the next item when they are done */
  int chunk, half;             /* query_work */
  int blocks;
  int shift;      /* of costs, in the list */
  int64_t places; /* of the list */
  size_t records, bytes;
};

/** For heads of up to so many elements; in a file each, for they compile for long. */
tg_status run_attention_fwd_64(const tg_context *ctx, const tg_attention_fwd_args *a,
                               const attention_fwd_plan &p);
tg_status run_attention_fwd_96(const tg_context *ctx, const tg_attention_fwd_args *a,
                               const attention_fwd_plan &p);
tg_status run_attention_fwd_128(const tg_context *ctx, const tg_attention_fwd_args *a,
                                const attention_fwd_plan &p);
tg_status run_attention_fwd_192(const tg_context *ctx, const tg_attention_fwd_args *a,
                                const attention_fwd_plan &p);
tg_status run_attention_fwd_256(const tg_context *ctx, const tg_attention_fwd_args *a,
                                const attention_fwd_plan &p);

} // namespace TGI_CUDA_ENTRY

#endif
