#include "ops/shared/rotation/rotation_words.h"

/* Without kv there is no k. */
const char tgi_rope_fwd_syntax[] = TGI_ROTATION_SYNTAX;
const char tgi_rope_bwd_syntax[] = TGI_ROTATION_SYNTAX;

void tgi_rope_fwd_shape(tgi_shape *s, tg_rope_fwd_args *a)
{
  const tgi_rotation_words w = tgi_read_rotation(s);
  TGI_FILL_ROTATION(a, w);
  a->q = a->q_out = w.q;
  if (w.k.shape[2] > 0) {
    a->k = a->k_out = w.k;
  }
  a->rounding = w.rounding;
}

/* Two products and a sum. */
void tgi_rope_fwd_cost(const tg_rope_fwd_args *a, tgi_cost *cost)
{
  const int64_t k = tgi_present(&a->k) ? tgi_numel(&a->k) : 0;
  cost->flops = 3.0 * (double)(tgi_numel(&a->q) + k);
}

void tgi_rope_bwd_shape(tgi_shape *s, tg_rope_bwd_args *a)
{
  const tgi_rotation_words w = tgi_read_rotation(s);
  TGI_FILL_ROTATION(a, w);
  a->dq_out = a->dq = w.q;
  if (w.k.shape[2] > 0) {
    a->dk_out = a->dk = w.k;
  }
}

void tgi_rope_bwd_cost(const tg_rope_bwd_args *a, tgi_cost *cost)
{
  const int64_t k = tgi_present(&a->dk) ? tgi_numel(&a->dk) : 0;
  cost->flops = 3.0 * (double)(tgi_numel(&a->dq) + k);
}
