#include "ops/shared/loss/loss_facts.h"

static void check_common(tgi_call *call, const tg_tensor *logits, const loss_facts *facts)
{
  if (logits->shape[1] == 0) {
    tgi_fail(call, TG_BAD_SHAPE, "logits", "expected a vocabulary of 1 or more, got 0");
  }
  check_loss_facts(call, facts);
}

void tgi_cross_entropy_fwd_check(tgi_call *call, const tg_cross_entropy_fwd_args *a)
{
  const int64_t rows = a->logits.shape[0];
  const loss_facts facts = LOSS_FACTS(a);
  check_common(call, &a->logits, &facts);
  TGI_WANT_SHAPE(call, a, targets, rows);
  TGI_WANT_SHAPE(call, a, loss, a->reduction == TG_REDUCTION_NONE ? rows : 1);
  TGI_WANT_SHAPE(call, a, token_loss, rows);
  TGI_WANT_SHAPE(call, a, log_prob, rows);
  TGI_WANT_SHAPE(call, a, lse, rows);
  TGI_WANT_SHAPE(call, a, argmax, rows);
  /* No rows still have a sum: 0, or 0 / n. */
  call->empty = rows == 0 && a->reduction == TG_REDUCTION_NONE;
}

void tgi_cross_entropy_bwd_check(tgi_call *call, const tg_cross_entropy_bwd_args *a)
{
  const int64_t rows = a->logits.shape[0];
  const loss_facts facts = LOSS_FACTS(a);
  check_common(call, &a->logits, &facts);
  TGI_WANT_SHAPE(call, a, targets, rows);
  TGI_WANT_SHAPE(call, a, lse, rows);
  TGI_WANT_SHAPE(call, a, dloss, a->reduction == TG_REDUCTION_NONE ? rows : 1);
  TGI_WANT_SHAPE(call, a, dlogits, rows, a->logits.shape[1]);
  TGI_WANT_DTYPE(call, a, dlogits, TG_DTYPE_BIT(a->logits.dtype));
  call->empty = rows == 0;
}

void tgi_cross_entropy_fwdbwd_check(tgi_call *call, const tg_cross_entropy_fwdbwd_args *a)
{
  const int64_t rows = a->logits.shape[0];
  const int64_t results = a->reduction == TG_REDUCTION_NONE ? rows : 1;
  const loss_facts facts = LOSS_FACTS(a);
  check_common(call, &a->logits, &facts);
  TGI_WANT_SHAPE(call, a, targets, rows);
  TGI_WANT_SHAPE(call, a, dloss, results);
  TGI_WANT_SHAPE(call, a, loss, results);
  TGI_WANT_SHAPE(call, a, token_loss, rows);
  TGI_WANT_SHAPE(call, a, log_prob, rows);
  TGI_WANT_SHAPE(call, a, lse, rows);
  TGI_WANT_SHAPE(call, a, argmax, rows);
  TGI_WANT_SHAPE(call, a, dlogits, rows, a->logits.shape[1]);
  TGI_WANT_DTYPE(call, a, dlogits, TG_DTYPE_BIT(a->logits.dtype));
  call->empty = rows == 0 && a->reduction == TG_REDUCTION_NONE;
}
