/* Experts' feed-forward blocks with bad plans and arguments, which the contract refuses by name;
 * and what the backward may write in the place of its input. */
#include "tegula/tegula.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>

#include <cmocka.h>

#include "cpu_entries.h"
#include "expect_op.h"

enum { kTokens = 3, kTop = 2, kSlots = kTokens * kTop, kExperts = 4, kHidden = 5, kInter = 2 };

typedef struct experts {
  float x[kTokens * kHidden], weights[kSlots], gate_up[kExperts * 2 * kInter * kHidden];
  float down[kExperts * kHidden * kInter], h[kSlots * 2 * kInter], y[kTokens * kHidden];
  float dx[kTokens * kHidden], dweights[kSlots], ddown[kExperts * kHidden * kInter];
  int32_t offsets[kExperts + 1], slot[kSlots], row[kSlots];
} experts;

static tg_tensor of_experts(float *data, int64_t rows, int64_t cols)
{
  return (tg_tensor){.data = data, .dtype = TG_F32, .ndim = 3, .shape = {kExperts, rows, cols}};
}

static tg_moe_mlp_fwd_args experts_forward(experts *p)
{
  return (tg_moe_mlp_fwd_args){.x = tg_tensor_2d(p->x, TG_F32, kTokens, kHidden),
                               .weights = tg_tensor_2d(p->weights, TG_F32, kTokens, kTop),
                               .offsets = tg_tensor_1d(p->offsets, TG_I32, kExperts + 1),
                               .slot = tg_tensor_1d(p->slot, TG_I32, kSlots),
                               .row = tg_tensor_2d(p->row, TG_I32, kTokens, kTop),
                               .gate_up = of_experts(p->gate_up, 2 * kInter, kHidden),
                               .down = of_experts(p->down, kHidden, kInter),
                               .y = tg_tensor_2d(p->y, TG_F32, kTokens, kHidden),
                               .activation = TG_GATED_SWIGLU,
                               .packing = TG_GATE_UP_HALVES};
}

static tg_moe_mlp_bwd_args experts_backward(experts *p)
{
  const tg_moe_mlp_fwd_args f = experts_forward(p);
  return (tg_moe_mlp_bwd_args){.dy = f.y,
                               .x = f.x,
                               .weights = f.weights,
                               .offsets = f.offsets,
                               .slot = f.slot,
                               .row = f.row,
                               .gate_up = f.gate_up,
                               .down = f.down,
                               .preactivation = tg_tensor_2d(p->h, TG_F32, kSlots, 2 * kInter),
                               .dx = tg_tensor_2d(p->dx, TG_F32, kTokens, kHidden),
                               .dweights = tg_tensor_2d(p->dweights, TG_F32, kTokens, kTop),
                               .ddown = of_experts(p->ddown, kHidden, kInter),
                               .activation = f.activation,
                               .packing = f.packing};
}

/* Both directions, with a workspace of the size that they ask for; nothing is written. */
static void must_refuse_plan(tg_context *ctx, experts *p, const char *message)
{
  tg_moe_mlp_fwd_args f = experts_forward(p);
  tg_moe_mlp_bwd_args b = experts_backward(p);
  char text[128];
  p->y[0] = p->dx[0] = p->dweights[0] = p->ddown[0] = 7;
  must_run(ctx, tg_moe_mlp_fwd_workspace(ctx, &f, &f.workspace_bytes));
  must_run(ctx, tg_moe_mlp_bwd_workspace(ctx, &b, &b.workspace_bytes));
  f.workspace = aligned_alloc(256, f.workspace_bytes);
  b.workspace = aligned_alloc(256, b.workspace_bytes);
  snprintf(text, sizeof text, "moe_mlp_fwd: %s", message);
  must_fail(ctx, tg_moe_mlp_fwd(ctx, &f), TG_BAD_ARGUMENT, text);
  snprintf(text, sizeof text, "moe_mlp_bwd: %s", message);
  must_fail(ctx, tg_moe_mlp_bwd(ctx, &b), TG_BAD_ARGUMENT, text);
  free(f.workspace);
  free(b.workspace);
  assert_true(p->y[0] == 7 && p->dx[0] == 7 && p->dweights[0] == 7 && p->ddown[0] == 7);
}

static void test_of_bad_plans(void **state)
{
  cpu_entries *e = *state;
  for (int k = 0; k < e->count; k++) {
    experts p = {
        .offsets = {0, 2, 2, 5, 5}, .slot = {0, 1, 2, 3, 6, -9}, .row = {0, 1, 2, 3, 4, -1}};
    must_refuse_plan(e->ctx[k], &p, "slot[4]: expected 0 to 5, got 6");
    p.slot[4] = 4;
    p.row[5] = 6;
    must_refuse_plan(e->ctx[k], &p, "row[2, 1]: expected -1 to 5, got 6");
    p.row[3] = -2;
    must_refuse_plan(e->ctx[k], &p, "row[1, 1]: expected -1 to 5, got -2");
    p.offsets[4] = 7;
    must_refuse_plan(e->ctx[k], &p, "offsets[4]: expected 5 to 6, got 7");
    p.offsets[1] = -1;
    must_refuse_plan(e->ctx[k], &p, "offsets[1]: expected 0 to 6, got -1");
  }
}

static void must_refuse_experts(tg_context *ctx, const tg_moe_mlp_fwd_args *f, tg_status status,
                                const char *message)
{
  size_t bytes;
  must_fail(ctx, tg_moe_mlp_fwd_workspace(ctx, f, &bytes), status, message);
}

static void test_sizes(void **state)
{
  cpu_entries *e = *state;
  experts p = {.offsets = {0}};
  tg_moe_mlp_fwd_args f = experts_forward(&p);
  f.gate_up.shape[0] = 0;
  must_refuse_experts(e->ctx[0], &f, TG_BAD_SHAPE,
                      "moe_mlp_fwd: gate_up: expected 1 to 2^31 - 2 experts, got 0");
  f = experts_forward(&p);
  f.row.shape[1] = 0;
  must_refuse_experts(e->ctx[0], &f, TG_BAD_SHAPE,
                      "moe_mlp_fwd: row: expected at least 1 row for a token, got 0");
  f = experts_forward(&p);
  f.x.shape[0] = 1 << 30;
  must_refuse_experts(e->ctx[0], &f, TG_BAD_SHAPE,
                      "moe_mlp_fwd: row: expected fewer than 2^31 of them, got [1073741824, 2]");
  f = experts_forward(&p);
  f.gate_up.shape[1] = 3;
  must_refuse_experts(e->ctx[0], &f, TG_BAD_SHAPE,
                      "moe_mlp_fwd: gate_up: expected f32 [4, 4, 5], got f32 [4, 3, 5]");
  f = experts_forward(&p);
  f.in_first = true;
  must_refuse_experts(e->ctx[0], &f, TG_BAD_SHAPE,
                      "moe_mlp_fwd: gate_up: expected f32 [4, 5, 10], got f32 [4, 4, 5]");
  f = experts_forward(&p);
  f.down.dtype = TG_BF16;
  must_refuse_experts(e->ctx[0], &f, TG_BAD_DTYPE,
                      "moe_mlp_fwd: down: expected f32, got bf16 [4, 5, 2]");
  f = experts_forward(&p);
  f.activation = TG_GATED_SWIGLU_CLAMPED;
  f.alpha = 1;
  must_refuse_experts(e->ctx[0], &f, TG_BAD_ARGUMENT,
                      "moe_mlp_fwd: limit: expected a finite number > 0, got 0");
}

/* What the backward may write in the place of the forward's result is what it gives beside it; an
 * expert without rows has no gradient, whatever lay there. */
static void test_in_place(void **state)
{
  cpu_entries *e = *state;
  for (int k = 0; k < e->count; k++) {
    experts p = {.offsets = {0, 2, 2, 5, 5}, .slot = {0, 3, 1, 2, 4}, .row = {0, 2, 3, 1, 4, -1}};
    float dh[kSlots * 2 * kInter];
    for (int i = 0; i < kExperts * kHidden * kInter; i++) {
      p.down[i] = (float)(i % 7) - 3;
      p.ddown[i] = NAN;
    }
    for (int i = 0; i < kSlots * 2 * kInter; i++) {
      p.h[i] = (float)(i % 5) - 2;
    }
    for (int i = 0; i < kSlots; i++) {
      p.weights[i] = 1 + (float)i;
    }
    for (int i = 0; i < kTokens * kHidden; i++) {
      p.y[i] = (float)(i % 3) - 1;
    }
    tg_moe_mlp_bwd_args b = experts_backward(&p);
    b.overwrite = true;
    b.dpreactivation = tg_tensor_2d(dh, TG_F32, kSlots, 2 * kInter);
    must_run(e->ctx[k], tg_moe_mlp_bwd_workspace(e->ctx[k], &b, &b.workspace_bytes));
    b.workspace = aligned_alloc(256, b.workspace_bytes);
    must_run(e->ctx[k], tg_moe_mlp_bwd(e->ctx[k], &b));
    const int each = kHidden * kInter;
    for (int i = 0; i < each; i++) {
      assert_true(isfinite(p.ddown[i]) && isfinite(p.ddown[2 * each + i]));
      assert_true(p.ddown[each + i] == 0 && p.ddown[3 * each + i] == 0);
    }
    b.dpreactivation.data = p.h;
    must_run(e->ctx[k], tg_moe_mlp_bwd(e->ctx[k], &b));
    assert_memory_equal(p.h, dh, sizeof dh);
    free(b.workspace);
  }
}

int main(void)
{
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_of_bad_plans),
      cmocka_unit_test(test_sizes),
      cmocka_unit_test(test_in_place),
  };
  return cmocka_run_group_tests(tests, open_entries, close_entries);
}
