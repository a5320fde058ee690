#include "ops/linear_cross_entropy/linear_cross_entropy_call.h"
#include "ops/shared/loss/loss_facts.h"

/* Chunks are cut to the problem; what is left must be countable in bytes. */
static void check_chunks(tgi_call *call, const lce_args *a)
{
  const int64_t rows = a->hidden.shape[0], vocab = a->weight.shape[0];
  tgi_want_range(call, "chunk_rows", a->chunk_rows, 0, INT64_MAX);
  tgi_want_range(call, "chunk_cols", a->chunk_cols, 0, INT64_MAX);
  const int64_t r = a->chunk_rows < rows ? a->chunk_rows : rows;
  const int64_t c = a->chunk_cols > 0 && a->chunk_cols < vocab ? a->chunk_cols : vocab;
  if ((double)r * (double)c > 0x1p58 || vocab > (int64_t)1 << 58) {
    tgi_fail(call, TG_BAD_SHAPE, "hidden",
             "expected chunks of fewer than 2^58 logits, got %lld x %lld", (long long)r,
             (long long)c);
  }
}

static void check_all(tgi_call *call, const lce_args *a)
{
  const int64_t rows = a->hidden.shape[0], size = a->hidden.shape[1], vocab = a->weight.shape[0];
  const int64_t results = a->reduction == TG_REDUCTION_NONE ? rows : 1;
  const loss_facts facts = LOSS_FACTS(a);
  if (vocab == 0) {
    tgi_fail(call, TG_BAD_SHAPE, "weight", "expected a vocabulary of 1 or more, got 0");
  }
  check_loss_facts(call, &facts);
  TGI_WANT_SHAPE(call, a, weight, vocab, size);
  TGI_WANT_DTYPE(call, a, weight, tgi_like_or_f32(&a->hidden));
  TGI_WANT_SHAPE(call, a, bias, vocab);
  TGI_WANT_DTYPE(call, a, bias, tgi_like_or_f32(&a->weight));
  TGI_WANT_SHAPE(call, a, targets, rows);
  TGI_WANT_SHAPE(call, a, dloss, results);
  TGI_WANT_SHAPE(call, a, loss, results);
  TGI_WANT_SHAPE(call, a, token_loss, rows);
  TGI_WANT_SHAPE(call, a, log_prob, rows);
  TGI_WANT_SHAPE(call, a, lse, rows);
  TGI_WANT_SHAPE(call, a, argmax, rows);
  TGI_WANT_SHAPE(call, a, dhidden, rows, size);
  TGI_WANT_DTYPE(call, a, dhidden, TG_DTYPE_BIT(a->hidden.dtype));
  TGI_WANT_SHAPE(call, a, dweight, vocab, size);
  TGI_WANT_DTYPE(call, a, dweight, tgi_like_or_f32(&a->weight));
  TGI_WANT_SHAPE(call, a, dbias, vocab);
  TGI_WANT_DTYPE(call, a, dbias, tgi_like_or_f32(&a->weight));
  if (call->status == TG_OK) {
    check_chunks(call, a);
  }
  /* No rows still have a sum, 0 or 0 / n, and gradients to overwrite. */
  const bool sums = lce_wants_loss(a) && a->reduction != TG_REDUCTION_NONE;
  call->empty = rows == 0 && !sums && !a->overwrite;
}

void tgi_linear_cross_entropy_fwd_check(tgi_call *call, const tg_linear_cross_entropy_fwd_args *a)
{
  const lce_args all = lce_forward(a);
  check_all(call, &all);
}

void tgi_linear_cross_entropy_bwd_check(tgi_call *call, const tg_linear_cross_entropy_bwd_args *a)
{
  const lce_args all = lce_backward(a);
  check_all(call, &all);
}

void tgi_linear_cross_entropy_fwdbwd_check(tgi_call *call,
                                           const tg_linear_cross_entropy_fwdbwd_args *a)
{
  check_all(call, a);
}
