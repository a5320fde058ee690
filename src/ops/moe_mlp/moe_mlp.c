#include "ops/shared/gated/gated_choice.h"

/* What both directions have. */
typedef struct experts_call {
  const tg_tensor *x, *weights, *offsets, *slot, *row, *gate_up, *down, *down_bias, *preactivation;
  tgi_gated_choice choice;
  bool in_first;
} experts_call;

#define EXPERTS_CALL(a)                                                                            \
  (experts_call)                                                                                   \
  {                                                                                                \
    &(a)->x, &(a)->weights, &(a)->offsets, &(a)->slot, &(a)->row, &(a)->gate_up, &(a)->down,       \
        &(a)->down_bias, &(a)->preactivation, TGI_GATED_CHOICE(a), (a)->in_first                   \
  }

typedef struct extents {
  int64_t tokens, hidden, inter, experts, k, rows;
} extents;

static extents extents_of(const experts_call *c)
{
  const int64_t tokens = c->x->shape[0], k = c->row->shape[1];
  return (extents){.tokens = tokens,
                   .hidden = c->x->shape[1],
                   .inter = c->down->shape[c->in_first ? 1 : 2],
                   .experts = c->gate_up->shape[0],
                   .k = k,
                   .rows = k >= 1 && tokens <= INT32_MAX / k ? tokens * k : 0};
}

static void check_plan(tgi_call *call, const experts_call *c, const extents *n)
{
  if (n->experts < 1 || n->experts >= INT32_MAX) {
    tgi_fail(call, TG_BAD_SHAPE, "gate_up", "expected 1 to 2^31 - 2 experts, got %lld",
             (long long)n->experts);
  } else if (n->k < 1) {
    tgi_fail(call, TG_BAD_SHAPE, "row", "expected at least 1 row for a token, got %lld",
             (long long)n->k);
  } else if (n->tokens > INT32_MAX / n->k) {
    tgi_fail(call, TG_BAD_SHAPE, "row", "expected fewer than 2^31 of them, got [%lld, %lld]",
             (long long)n->tokens, (long long)n->k);
  }
  tgi_want_shape(call, "weights", c->weights, 2, (const int64_t[]){n->tokens, n->k});
  tgi_want_dtype(call, "weights", c->weights, tgi_like_or_f32(c->x));
  tgi_want_shape(call, "offsets", c->offsets, 1, (const int64_t[]){n->experts + 1});
  tgi_want_shape(call, "slot", c->slot, 1, (const int64_t[]){n->rows});
  tgi_want_shape(call, "row", c->row, 2, (const int64_t[]){n->tokens, n->k});
}

static void want_matrix(tgi_call *call, const char *argument, const tg_tensor *t, bool in_first,
                        int64_t experts, int64_t out, int64_t in)
{
  tgi_want_shape(call, argument, t, 3,
                 (const int64_t[]){experts, in_first ? in : out, in_first ? out : in});
}

static void want_bias(tgi_call *call, const char *argument, const tg_tensor *t, int64_t experts,
                      int64_t out)
{
  tgi_want_shape(call, argument, t, 2, (const int64_t[]){experts, out});
}

static void check_experts(tgi_call *call, const experts_call *c, const extents *n)
{
  const uint32_t like_x = c->x->dtype == TG_F32 ? TGI_BITS_FLOATS : tgi_like_or_f32(c->x);
  check_plan(call, c, n);
  want_matrix(call, "gate_up", c->gate_up, c->in_first, n->experts, 2 * n->inter, n->hidden);
  tgi_want_dtype(call, "gate_up", c->gate_up, like_x);
  want_matrix(call, "down", c->down, c->in_first, n->experts, n->hidden, n->inter);
  tgi_want_dtype(call, "down", c->down, TG_DTYPE_BIT(c->gate_up->dtype));
  want_bias(call, "down_bias", c->down_bias, n->experts, n->hidden);
  tgi_want_dtype(call, "down_bias", c->down_bias, tgi_like_or_f32(c->gate_up));
  tgi_want_shape(call, "preactivation", c->preactivation, 2,
                 (const int64_t[]){n->rows, 2 * n->inter});
  tgi_want_dtype(call, "preactivation", c->preactivation, TG_DTYPE_BIT(c->x->dtype));
  tgi_want_gated_choice(call, c->choice, TG_GATED_SWIGLU);
}

void tgi_moe_mlp_fwd_check(tgi_call *call, const tg_moe_mlp_fwd_args *a)
{
  const experts_call c = EXPERTS_CALL(a);
  const extents n = extents_of(&c);
  check_experts(call, &c, &n);
  want_bias(call, "gate_up_bias", &a->gate_up_bias, n.experts, 2 * n.inter);
  TGI_WANT_DTYPE(call, a, gate_up_bias, tgi_like_or_f32(&a->gate_up));
  TGI_WANT_SHAPE(call, a, residual, n.tokens, n.hidden);
  TGI_WANT_DTYPE(call, a, residual, TG_DTYPE_BIT(a->x.dtype));
  TGI_WANT_SHAPE(call, a, y, n.tokens, n.hidden);
  TGI_WANT_DTYPE(call, a, y, TG_DTYPE_BIT(a->x.dtype));
  call->empty = n.rows == 0;
}

void tgi_moe_mlp_bwd_check(tgi_call *call, const tg_moe_mlp_bwd_args *a)
{
  const experts_call c = EXPERTS_CALL(a);
  const extents n = extents_of(&c);
  const uint32_t like_x = TG_DTYPE_BIT(a->x.dtype), gradient = tgi_like_or_f32(&a->gate_up);
  check_experts(call, &c, &n);
  TGI_WANT_SHAPE(call, a, dy, n.tokens, n.hidden);
  TGI_WANT_DTYPE(call, a, dy, like_x);
  TGI_WANT_SHAPE(call, a, dx, n.tokens, n.hidden);
  TGI_WANT_DTYPE(call, a, dx, like_x);
  TGI_WANT_SHAPE(call, a, dweights, n.tokens, n.k);
  TGI_WANT_DTYPE(call, a, dweights, tgi_like_or_f32(&a->weights));
  want_matrix(call, "dgate_up", &a->dgate_up, a->in_first, n.experts, 2 * n.inter, n.hidden);
  TGI_WANT_DTYPE(call, a, dgate_up, gradient);
  want_bias(call, "dgate_up_bias", &a->dgate_up_bias, n.experts, 2 * n.inter);
  TGI_WANT_DTYPE(call, a, dgate_up_bias, gradient);
  want_matrix(call, "ddown", &a->ddown, a->in_first, n.experts, n.hidden, n.inter);
  TGI_WANT_DTYPE(call, a, ddown, gradient);
  want_bias(call, "ddown_bias", &a->ddown_bias, n.experts, n.hidden);
  TGI_WANT_DTYPE(call, a, ddown_bias, gradient);
  TGI_WANT_SHAPE(call, a, dpreactivation, n.rows, 2 * n.inter);
  TGI_WANT_DTYPE(call, a, dpreactivation, like_x);
  call->empty = n.rows == 0 && !a->overwrite;
}
