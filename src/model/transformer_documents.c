/* Several documents in the rows of a pass: what attention and positions read of them. */
#include "transformer.h"

/* A strided view [batch, seq, ..] as one row of batch * seq tokens. */
static void join_rows(tg_tensor *t)
{
  t->shape[1] *= t->shape[0];
  t->shape[0] = 1;
  t->stride[0] = t->shape[1] * t->stride[1];
}

/* [batch, heads, seq] as [1, heads, batch * seq]. The op alone reads what it writes there. */
static tg_tensor join_lse(const tg_tensor *lse)
{
  const int64_t shape[] = {1, lse->shape[1], lse->shape[0] * lse->shape[2]};
  return lse->ndim ? tg_tensor_view(lse->data, lse->dtype, 3, shape) : *lse;
}

void tgi_documents_cut_fwd(const tgi_pass *pass, tg_attention_fwd_args *args)
{
  if (!pass->documents) {
    return;
  }
  tg_tensor *const joined[] = {&args->q, &args->k, &args->v, &args->out};
  for (size_t i = 0; i < sizeof joined / sizeof joined[0]; i++) {
    join_rows(joined[i]);
  }
  args->lse = join_lse(&args->lse);
  args->cu_seqlens_q = args->cu_seqlens_k = pass->documents->cu_seqlens;
}

void tgi_documents_cut_bwd(const tgi_pass *pass, tg_attention_bwd_args *args)
{
  if (!pass->documents) {
    return;
  }
  tg_tensor *const joined[] = {&args->dout, &args->q,  &args->k,  &args->v,
                               &args->out,  &args->dq, &args->dk, &args->dv};
  for (size_t i = 0; i < sizeof joined / sizeof joined[0]; i++) {
    join_rows(joined[i]);
  }
  args->lse = join_lse(&args->lse);
  args->cu_seqlens_q = args->cu_seqlens_k = pass->documents->cu_seqlens;
}
