/* GeGLU on the CPU.
 *
 * Method     One pass; cpu/gelu_math.h has the formulas, cpu/gated_map.h the loops.
 * Work       Pieces of 64 KiB of rows that follow each other in memory, else chunks of rows.
 * Bound      Memory: forward reads gate and up and writes y, backward reads dy, gate and up and
 *            writes dgate and dup. Results too large for the caches are stored past them, unless
 *            they replace an input.
 */
#include "cpu/gated_map.h"
#include "ops/kernels.h"
#include "ops/shared/gated/gated.h"

static tgi_gated_call plan_fwd(const tg_context *ctx, const tg_geglu_fwd_args *a)
{
  tgi_gated_call c = tgi_gated_fwd_of(ctx, TGI_GATE_UP(a), &a->y, a->rounding);
  c.erf = a->approximation == TG_GELU_ERF;
  return c;
}

static tgi_gated_call plan_bwd(const tg_context *ctx, const tg_geglu_bwd_args *a)
{
  tgi_gated_call c = tgi_gated_bwd_of(ctx, &a->dy, TGI_GATE_UP(a), TGI_DGATE_UP(a));
  c.erf = a->approximation == TG_GELU_ERF;
  return c;
}

static void fwd_pieces(void *arg, int64_t begin, int64_t end, int thread)
{
  const tgi_gated_call *c = arg;
  (void)thread;
  if (c->erf) {
    tgi_gated_pieces(c, TGI_GATE_GELU_ERF, false, begin, end);
  } else {
    tgi_gated_pieces(c, TGI_GATE_GELU_TANH, false, begin, end);
  }
}

static void bwd_pieces(void *arg, int64_t begin, int64_t end, int thread)
{
  const tgi_gated_call *c = arg;
  (void)thread;
  if (c->erf) {
    tgi_gated_pieces(c, TGI_GATE_GELU_ERF, true, begin, end);
  } else {
    tgi_gated_pieces(c, TGI_GATE_GELU_TANH, true, begin, end);
  }
}

tg_status TGI_KERNEL(geglu_fwd)(const tg_context *ctx, const tg_geglu_fwd_args *a)
{
  tgi_gated_call c = plan_fwd(ctx, a);
  tgi_for(ctx, c.pieces.count, tgi_pieces_grain(&c.pieces), fwd_pieces, &c);
  return TG_OK;
}

void TGI_PLAN(geglu_fwd)(const tg_context *ctx, const tg_geglu_fwd_args *a, char *text,
                         size_t bytes)
{
  const tgi_gated_call c = plan_fwd(ctx, a);
  tgi_pieces_describe(&c.pieces, text, bytes);
}

tg_status TGI_KERNEL(geglu_bwd)(const tg_context *ctx, const tg_geglu_bwd_args *a)
{
  tgi_gated_call c = plan_bwd(ctx, a);
  tgi_for(ctx, c.pieces.count, tgi_pieces_grain(&c.pieces), bwd_pieces, &c);
  return TG_OK;
}

void TGI_PLAN(geglu_bwd)(const tg_context *ctx, const tg_geglu_bwd_args *a, char *text,
                         size_t bytes)
{
  const tgi_gated_call c = plan_bwd(ctx, a);
  tgi_pieces_describe(&c.pieces, text, bytes);
}
