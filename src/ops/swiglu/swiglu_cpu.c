/* SwiGLU on the CPU.
 *
 * Method     One pass; cpu/silu_math.h has the formulas, cpu/gated_map.h the loops.
 * Work       Pieces of 64 KiB of rows that follow each other in memory, else chunks of rows.
 * Bound      Memory: forward reads gate and up and writes y, backward reads dy, gate and up and
 *            writes dgate and dup. Results too large for the caches are stored past them, unless
 *            they replace an input.
 */
#include "cpu/gated_map.h"
#include "ops/kernels.h"
#include "ops/shared/gated/gated.h"

static tgi_gated_call plan_fwd(const tg_context *ctx, const tg_swiglu_fwd_args *a)
{
  return tgi_gated_fwd_of(ctx, TGI_GATE_UP(a), &a->y, a->rounding);
}

static tgi_gated_call plan_bwd(const tg_context *ctx, const tg_swiglu_bwd_args *a)
{
  return tgi_gated_bwd_of(ctx, &a->dy, TGI_GATE_UP(a), TGI_DGATE_UP(a));
}

static void fwd_pieces(void *arg, int64_t begin, int64_t end, int thread)
{
  (void)thread;
  tgi_gated_pieces(arg, TGI_GATE_SILU, false, begin, end);
}

static void bwd_pieces(void *arg, int64_t begin, int64_t end, int thread)
{
  (void)thread;
  tgi_gated_pieces(arg, TGI_GATE_SILU, true, begin, end);
}

tg_status TGI_KERNEL(swiglu_fwd)(const tg_context *ctx, const tg_swiglu_fwd_args *a)
{
  tgi_gated_call c = plan_fwd(ctx, a);
  tgi_for(ctx, c.pieces.count, tgi_pieces_grain(&c.pieces), fwd_pieces, &c);
  return TG_OK;
}

void TGI_PLAN(swiglu_fwd)(const tg_context *ctx, const tg_swiglu_fwd_args *a, char *text,
                          size_t bytes)
{
  const tgi_gated_call c = plan_fwd(ctx, a);
  tgi_pieces_describe(&c.pieces, text, bytes);
}

tg_status TGI_KERNEL(swiglu_bwd)(const tg_context *ctx, const tg_swiglu_bwd_args *a)
{
  tgi_gated_call c = plan_bwd(ctx, a);
  tgi_for(ctx, c.pieces.count, tgi_pieces_grain(&c.pieces), bwd_pieces, &c);
  return TG_OK;
}

void TGI_PLAN(swiglu_bwd)(const tg_context *ctx, const tg_swiglu_bwd_args *a, char *text,
                          size_t bytes)
{
  const tgi_gated_call c = plan_bwd(ctx, a);
  tgi_pieces_describe(&c.pieces, text, bytes);
}
