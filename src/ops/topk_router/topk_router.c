#include "ops/kernels.h"

static void check_router(tgi_call *call, const tg_tensor *logits, const tg_tensor *indices,
                         tg_router_scoring scoring)
{
  const int64_t tokens = logits->shape[0], experts = logits->shape[1], k = indices->shape[1];
  if (experts > INT32_MAX) {
    tgi_fail(call, TG_BAD_SHAPE, "logits", "expected fewer than 2^31 experts, got %lld",
             (long long)experts);
  }
  if (k < 1 || k > experts) {
    tgi_fail(call, TG_BAD_SHAPE, "indices", "expected 1 to %lld indices for a token, got %lld",
             (long long)experts, (long long)k);
  }
  if (k > 0 && tokens > INT32_MAX / k) {
    tgi_fail(call, TG_BAD_SHAPE, "indices", "expected fewer than 2^31 of them, got [%lld, %lld]",
             (long long)tokens, (long long)k);
  }
  tgi_want_range(call, "scoring", scoring, TG_ROUTER_SELECTED, TG_ROUTER_RENORMALIZED);
}

void tgi_topk_router_fwd_check(tgi_call *call, const tg_topk_router_fwd_args *a)
{
  const int64_t tokens = a->logits.shape[0], experts = a->logits.shape[1], k = a->indices.shape[1];
  TGI_WANT_SHAPE(call, a, token_mask, tokens);
  TGI_WANT_SHAPE(call, a, indices, tokens, k);
  TGI_WANT_SHAPE(call, a, weights, tokens, k);
  TGI_WANT_DTYPE(call, a, weights, tgi_like_or_f32(&a->logits));
  TGI_WANT_SHAPE(call, a, counts, experts);
  TGI_WANT_SHAPE(call, a, prob_sum, experts);
  check_router(call, &a->logits, &a->indices, a->scoring);
  call->empty = tokens == 0 && !tgi_present(&a->counts) && !tgi_present(&a->prob_sum);
}

void tgi_topk_router_bwd_check(tgi_call *call, const tg_topk_router_bwd_args *a)
{
  const int64_t tokens = a->logits.shape[0], experts = a->logits.shape[1], k = a->indices.shape[1];
  TGI_WANT_SHAPE(call, a, dweights, tokens, k);
  TGI_WANT_DTYPE(call, a, dweights, tgi_like_or_f32(&a->logits));
  TGI_WANT_SHAPE(call, a, dprob_sum, experts);
  TGI_WANT_SHAPE(call, a, indices, tokens, k);
  TGI_WANT_SHAPE(call, a, token_mask, tokens);
  TGI_WANT_SHAPE(call, a, dlogits, tokens, experts);
  TGI_WANT_DTYPE(call, a, dlogits, TG_DTYPE_BIT(a->logits.dtype));
  check_router(call, &a->logits, &a->indices, a->scoring);
  call->empty = tokens == 0;
}
