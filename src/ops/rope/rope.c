#include "ops/kernels.h"
#include "ops/shared/rotation/rotation_checks.h"

/* k and k_out come together. */
static void check_pair(tgi_call *call, const char *argument, const tg_tensor *in,
                       const tg_tensor *out)
{
  if (tgi_present(in) != tgi_present(out)) {
    tgi_fail(call, TG_BAD_ARGUMENT, argument, "expected %s, got %s",
             tgi_present(in) ? "an output beside the input" : "none without the input",
             tgi_present(out) ? "one" : "none");
  }
}

void tgi_rope_fwd_check(tgi_call *call, const tg_rope_fwd_args *a)
{
  TGI_CHECK_ROTATION(call, a, q);
  tgi_want_range(call, "rounding", a->rounding, TG_ROUNDING_HF, TG_ROUNDING_ONCE);
  tgi_check_keys(call, "k", &a->q, &a->k);
  tgi_check_like(call, "q_out", &a->q_out, &a->q);
  check_pair(call, "k_out", &a->k, &a->k_out);
  tgi_check_like(call, "k_out", &a->k_out, &a->k);
  call->empty = tgi_no_heads(&a->q);
}

void tgi_rope_bwd_check(tgi_call *call, const tg_rope_bwd_args *a)
{
  TGI_CHECK_ROTATION(call, a, dq_out);
  tgi_check_keys(call, "dk_out", &a->dq_out, &a->dk_out);
  tgi_check_like(call, "dq", &a->dq, &a->dq_out);
  check_pair(call, "dk", &a->dk_out, &a->dk);
  tgi_check_like(call, "dk", &a->dk, &a->dk_out);
  call->empty = tgi_no_heads(&a->dq_out);
}
