/* GELU on the CPU.
 *
 * Method     One pass; cpu/gelu_math.h has the formulas.
 * Work       Pieces of 64 KiB of rows that follow each other in memory, else chunks of rows.
 * Bound      Memory: forward reads x and writes y, backward reads dy and x and writes dx. Results
 *            too large for the caches are stored past them, unless they replace an input.
 */
#include "cpu/activation_map.h"
#include "ops/kernels.h"

static tgi_activation_call plan(const tg_context *ctx, const tg_tensor *dy, const tg_tensor *x,
                                const tg_tensor *out, tg_gelu_approximation form)
{
  tgi_activation_call c = tgi_activation_of(ctx, dy, x, out);
  c.erf = form == TG_GELU_ERF;
  return c;
}

static void fwd_pieces(void *arg, int64_t begin, int64_t end, int thread)
{
  const tgi_activation_call *c = arg;
  (void)thread;
  if (c->erf) {
    tgi_activate_pieces(c, TGI_GELU_ERF, false, begin, end);
  } else {
    tgi_activate_pieces(c, TGI_GELU_TANH, false, begin, end);
  }
}

static void bwd_pieces(void *arg, int64_t begin, int64_t end, int thread)
{
  const tgi_activation_call *c = arg;
  (void)thread;
  if (c->erf) {
    tgi_activate_pieces(c, TGI_GELU_ERF, true, begin, end);
  } else {
    tgi_activate_pieces(c, TGI_GELU_TANH, true, begin, end);
  }
}

tg_status TGI_KERNEL(gelu_fwd)(const tg_context *ctx, const tg_gelu_fwd_args *a)
{
  tgi_activation_call c = plan(ctx, NULL, &a->x, &a->y, a->approximation);
  tgi_for(ctx, c.pieces.count, tgi_pieces_grain(&c.pieces), fwd_pieces, &c);
  return TG_OK;
}

void TGI_PLAN(gelu_fwd)(const tg_context *ctx, const tg_gelu_fwd_args *a, char *text, size_t bytes)
{
  const tgi_activation_call c = plan(ctx, NULL, &a->x, &a->y, a->approximation);
  tgi_pieces_describe(&c.pieces, text, bytes);
}

tg_status TGI_KERNEL(gelu_bwd)(const tg_context *ctx, const tg_gelu_bwd_args *a)
{
  tgi_activation_call c = plan(ctx, &a->dy, &a->x, &a->dx, a->approximation);
  tgi_for(ctx, c.pieces.count, tgi_pieces_grain(&c.pieces), bwd_pieces, &c);
  return TG_OK;
}

void TGI_PLAN(gelu_bwd)(const tg_context *ctx, const tg_gelu_bwd_args *a, char *text, size_t bytes)
{
  const tgi_activation_call c = plan(ctx, &a->dy, &a->x, &a->dx, a->approximation);
  tgi_pieces_describe(&c.pieces, text, bytes);
}
