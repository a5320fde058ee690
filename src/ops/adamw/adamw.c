#include "ops/kernels.h"

#include <math.h>
#include <stdio.h>

enum { kLists = 5 };

typedef struct list {
  const char *name;
  const tg_tensor *tensors; /* NULL: absent */
} list;

static bool overlap(const tg_tensor *a, const tg_tensor *b)
{
  const char *a0 = a->data, *b0 = b->data;
  return a0 < b0 + tgi_span_bytes(b) && b0 < a0 + tgi_span_bytes(a);
}

/* The tensors of one index: params' shape, memory of their own. */
static void check_index(tgi_call *call, const list *lists, int64_t i)
{
  for (int k = 1; k < kLists; k++) {
    char name[64];
    if (!lists[k].tensors) {
      continue;
    }
    const tg_tensor *t = &lists[k].tensors[i], *first = &lists[0].tensors[i];
    snprintf(name, sizeof name, "%s[%lld]", lists[k].name, (long long)i);
    tgi_want_shape(call, name, t, first->ndim, first->shape);
    for (int j = 0; j < k && !call->sizing && call->status == TG_OK; j++) {
      if (lists[j].tensors && overlap(t, &lists[j].tensors[i])) {
        tgi_fail(call, TG_BAD_ARGUMENT, name, "expected memory apart from %s[%lld], got an overlap",
                 lists[j].name, (long long)i);
      }
    }
  }
}

/* allow_zero: whether 0 is a value; otherwise it is what a caller leaves out. */
static void check_fraction(tgi_call *call, const char *argument, double value, bool allow_zero)
{
  if (!(value < 1 && (value > 0 || (allow_zero && value == 0)))) {
    tgi_fail(call, TG_BAD_ARGUMENT, argument, "expected a number %s 0 and < 1, got %g",
             allow_zero ? ">=" : ">", value);
  }
}

static void check_not_negative(tgi_call *call, const char *argument, double value)
{
  if (!isfinite(value) || value < 0) {
    tgi_fail(call, TG_BAD_ARGUMENT, argument, "expected a finite number >= 0, got %g", value);
  }
}

void tgi_adamw_step_check(tgi_call *call, const tg_adamw_step_args *a)
{
  const list lists[kLists] = {{"params", a->params},
                              {"grads", a->grads},
                              {"exp_avg", a->exp_avg},
                              {"exp_avg_sq", a->exp_avg_sq},
                              {"master", a->master}};
  for (int64_t i = 0; i < a->num_tensors && call->status == TG_OK; i++) {
    check_index(call, lists, i);
  }
  TGI_WANT_SHAPE(call, a, clip, 1);
  tgi_want_range(call, "step", a->step, 1, INT64_MAX);
  check_not_negative(call, "lr", a->lr);
  check_fraction(call, "beta1", a->beta1, a->allow_zero);
  check_fraction(call, "beta2", a->beta2, a->allow_zero);
  if (a->allow_zero) {
    check_not_negative(call, "eps", a->eps);
  } else {
    tgi_want_positive(call, "eps", a->eps);
  }
  check_not_negative(call, "weight_decay", a->weight_decay);
  if (a->has_grad_scale) {
    tgi_want_finite(call, "grad_scale", a->grad_scale);
  }
  call->empty = a->num_tensors == 0;
}
