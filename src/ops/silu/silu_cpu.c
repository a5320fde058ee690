/* SiLU on the CPU.
 *
 * Method     One pass; cpu/silu_math.h has the formulas.
 * Work       Pieces of 64 KiB of rows that follow each other in memory, else chunks of rows.
 * Bound      Memory: forward reads x and writes y, backward reads dy and x and writes dx. Results
 *            too large for the caches are stored past them, unless they replace an input.
 */
#include "cpu/activation_map.h"
#include "ops/kernels.h"

static void fwd_pieces(void *arg, int64_t begin, int64_t end, int thread)
{
  (void)thread;
  tgi_activate_pieces(arg, TGI_SILU, false, begin, end);
}

static void bwd_pieces(void *arg, int64_t begin, int64_t end, int thread)
{
  (void)thread;
  tgi_activate_pieces(arg, TGI_SILU, true, begin, end);
}

tg_status TGI_KERNEL(silu_fwd)(const tg_context *ctx, const tg_silu_fwd_args *a)
{
  tgi_activation_call c = tgi_activation_of(ctx, NULL, &a->x, &a->y);
  tgi_for(ctx, c.pieces.count, tgi_pieces_grain(&c.pieces), fwd_pieces, &c);
  return TG_OK;
}

void TGI_PLAN(silu_fwd)(const tg_context *ctx, const tg_silu_fwd_args *a, char *text, size_t bytes)
{
  const tgi_activation_call c = tgi_activation_of(ctx, NULL, &a->x, &a->y);
  tgi_pieces_describe(&c.pieces, text, bytes);
}

tg_status TGI_KERNEL(silu_bwd)(const tg_context *ctx, const tg_silu_bwd_args *a)
{
  tgi_activation_call c = tgi_activation_of(ctx, &a->dy, &a->x, &a->dx);
  tgi_for(ctx, c.pieces.count, tgi_pieces_grain(&c.pieces), bwd_pieces, &c);
  return TG_OK;
}

void TGI_PLAN(silu_bwd)(const tg_context *ctx, const tg_silu_bwd_args *a, char *text, size_t bytes)
{
  const tgi_activation_call c = tgi_activation_of(ctx, &a->dy, &a->x, &a->dx);
  tgi_pieces_describe(&c.pieces, text, bytes);
}
