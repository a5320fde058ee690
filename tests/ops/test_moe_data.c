/* Routing of a mixture of experts with bad data, which the contracts refuse by name, and what they
 * say of tokens without experts, of rows without slots, and of arguments that belong together. */
#include "tegula/tegula.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>

#include <cmocka.h>

#include "cpu_entries.h"
#include "expect_op.h"

enum { kTokens = 3, kTop = 2, kSlots = kTokens * kTop, kExperts = 4, kHidden = 5 };

static _Alignas(64) unsigned char workspace[4096];

/* ---- plan ---- */

typedef struct plan {
  int32_t indices[kSlots], offsets[kExperts + 1], slot[kSlots], row[kSlots];
} plan;

static tg_status make_plan(tg_context *ctx, plan *p)
{
  const tg_moe_plan_fwd_args a = {.indices = tg_tensor_2d(p->indices, TG_I32, kTokens, kTop),
                                  .offsets = tg_tensor_1d(p->offsets, TG_I32, kExperts + 1),
                                  .slot = tg_tensor_1d(p->slot, TG_I32, kSlots),
                                  .row = tg_tensor_2d(p->row, TG_I32, kTokens, kTop),
                                  .workspace = workspace,
                                  .workspace_bytes = sizeof workspace};
  return tg_moe_plan_fwd(ctx, &a);
}

static void test_plan(void **state)
{
  const int32_t offsets[] = {0, 1, 1, 3, 4}, slot[] = {3, 0, 5, 2, 1, 4};
  const int32_t row[] = {1, -1, 3, 0, -1, 2};
  cpu_entries *e = *state;
  for (int k = 0; k < e->count; k++) {
    plan p = {.indices = {2, 4, 3, 0, 4, 2}};
    must_run(e->ctx[k], make_plan(e->ctx[k], &p));
    assert_memory_equal(p.offsets, offsets, sizeof offsets);
    assert_memory_equal(p.slot, slot, sizeof slot);
    assert_memory_equal(p.row, row, sizeof row);
  }
}

static void test_plan_of_bad_indices(void **state)
{
  cpu_entries *e = *state;
  for (int k = 0; k < e->count; k++) {
    plan p = {.indices = {2, 4, 3, 5, 4, -1}, .slot = {7}};
    must_fail(e->ctx[k], make_plan(e->ctx[k], &p), TG_BAD_ARGUMENT,
              "moe_plan_fwd: indices[1, 1]: expected 0 to 4, got 5");
    p.indices[3] = -1;
    must_fail(e->ctx[k], make_plan(e->ctx[k], &p), TG_BAD_ARGUMENT,
              "moe_plan_fwd: indices[1, 1]: expected 0 to 4, got -1");
    assert_int_equal(p.slot[0], 7);
  }
}

static void test_sizes(void **state)
{
  cpu_entries *e = *state;
  size_t bytes;
  const tg_moe_plan_fwd_args large = {.indices = tg_tensor_2d(NULL, TG_I32, 1 << 30, 2),
                                      .offsets = tg_tensor_1d(NULL, TG_I32, 9),
                                      .slot = tg_tensor_1d(NULL, TG_I32, (int64_t)1 << 31),
                                      .row = tg_tensor_2d(NULL, TG_I32, 1 << 30, 2)};
  must_fail(e->ctx[0], tg_moe_plan_fwd_workspace(e->ctx[0], &large, &bytes), TG_BAD_SHAPE,
            "moe_plan_fwd: indices: expected fewer than 2^31 of them, got [1073741824, 2]");
  plan p = {.indices = {0}};
  tg_moe_plan_fwd_args none = {.indices = tg_tensor_2d(p.indices, TG_I32, kTokens, kTop),
                               .offsets = tg_tensor_1d(p.offsets, TG_I32, 1),
                               .slot = tg_tensor_1d(p.slot, TG_I32, kSlots),
                               .row = tg_tensor_2d(p.row, TG_I32, kTokens, kTop)};
  must_fail(e->ctx[0], tg_moe_plan_fwd(e->ctx[0], &none), TG_BAD_SHAPE,
            "moe_plan_fwd: offsets: expected 2 to 2^31 - 1 elements, got 1");
  const tg_topk_router_fwd_args wide = {.logits = tg_tensor_2d(NULL, TG_F32, kTokens, kExperts),
                                        .indices = tg_tensor_2d(NULL, TG_I32, kTokens, 5),
                                        .weights = tg_tensor_2d(NULL, TG_F32, kTokens, 5),
                                        .scoring = TG_ROUTER_ALL};
  must_fail(e->ctx[0], tg_topk_router_fwd_workspace(e->ctx[0], &wide, &bytes), TG_BAD_SHAPE,
            "topk_router_fwd: indices: expected 1 to 4 indices for a token, got 5");
  tg_topk_router_fwd_args many = wide;
  many.logits = tg_tensor_2d(NULL, TG_F32, (int64_t)1 << 31, kExperts);
  many.indices = tg_tensor_2d(NULL, TG_I32, (int64_t)1 << 31, 1);
  many.weights = tg_tensor_2d(NULL, TG_F32, (int64_t)1 << 31, 1);
  must_fail(e->ctx[0], tg_topk_router_fwd_workspace(e->ctx[0], &many, &bytes), TG_BAD_SHAPE,
            "topk_router_fwd: indices: expected fewer than 2^31 of them, got [2147483648, 1]");
}

/* ---- router ---- */

static void test_router_of_bad_indices(void **state)
{
  cpu_entries *e = *state;
  for (int k = 0; k < e->count; k++) {
    float logits[kTokens * kExperts] = {0}, dweights[kSlots] = {0}, dlogits[kTokens * kExperts];
    int64_t indices[kSlots] = {0, 1, 2, 3, 0, 4};
    tg_topk_router_bwd_args a = {.dweights = tg_tensor_2d(dweights, TG_F32, kTokens, kTop),
                                 .logits = tg_tensor_2d(logits, TG_F32, kTokens, kExperts),
                                 .indices = tg_tensor_2d(indices, TG_I64, kTokens, kTop),
                                 .dlogits = tg_tensor_2d(dlogits, TG_F32, kTokens, kExperts),
                                 .scoring = TG_ROUTER_SELECTED,
                                 .workspace = workspace,
                                 .workspace_bytes = sizeof workspace};
    dlogits[0] = 7;
    must_fail(e->ctx[k], tg_topk_router_bwd(e->ctx[k], &a), TG_BAD_ARGUMENT,
              "topk_router_bwd: indices[2, 1]: expected 0 to 3, got 4");
    indices[0] = -1;
    must_fail(e->ctx[k], tg_topk_router_bwd(e->ctx[k], &a), TG_BAD_ARGUMENT,
              "topk_router_bwd: indices[0, 0]: expected 0 to 3, got -1");
    assert_true(dlogits[0] == 7);
  }
}

/* An index that occurs twice gets both gradients. */
static void test_router_of_equal_indices(void **state)
{
  cpu_entries *e = *state;
  for (int k = 0; k < e->count; k++) {
    float logits[kExperts] = {1, 2, 3, 4}, dweights[kTop] = {1, 3}, dlogits[kExperts];
    int32_t indices[kTop] = {2, 2};
    const tg_topk_router_bwd_args a = {.dweights = tg_tensor_2d(dweights, TG_F32, 1, kTop),
                                       .logits = tg_tensor_2d(logits, TG_F32, 1, kExperts),
                                       .indices = tg_tensor_2d(indices, TG_I32, 1, kTop),
                                       .dlogits = tg_tensor_2d(dlogits, TG_F32, 1, kExperts),
                                       .scoring = TG_ROUTER_ALL,
                                       .workspace = workspace,
                                       .workspace_bytes = sizeof workspace};
    const double sum = exp(1) + exp(2) + exp(3) + exp(4), p = exp(3) / sum;
    must_run(e->ctx[k], tg_topk_router_bwd(e->ctx[k], &a));
    assert_true(fabs((double)dlogits[2] - 4 * p * (1 - p)) < 1e-6);
    assert_true(fabs((double)dlogits[0] + 4 * p * exp(1) / sum) < 1e-6);
  }
}

/* ---- combine ---- */

typedef struct combined {
  float y[kSlots * kHidden], weights[kSlots], out[kTokens * kHidden], dy[kSlots * kHidden];
  float dweights[kSlots];
  int32_t row[kSlots], slot[kSlots];
} combined;

static tg_moe_combine_fwd_args forward_of(combined *c)
{
  return (tg_moe_combine_fwd_args){.row = tg_tensor_2d(c->row, TG_I32, kTokens, kTop),
                                   .weights = tg_tensor_2d(c->weights, TG_F32, kTokens, kTop),
                                   .y = tg_tensor_2d(c->y, TG_F32, kSlots, kHidden),
                                   .out = tg_tensor_2d(c->out, TG_F32, kTokens, kHidden),
                                   .rounding = TG_ROUNDING_ONCE};
}

static tg_moe_combine_bwd_args backward_of(combined *c)
{
  return (tg_moe_combine_bwd_args){.dout = tg_tensor_2d(c->out, TG_F32, kTokens, kHidden),
                                   .row = tg_tensor_2d(c->row, TG_I32, kTokens, kTop),
                                   .slot = tg_tensor_1d(c->slot, TG_I32, kSlots),
                                   .weights = tg_tensor_2d(c->weights, TG_F32, kTokens, kTop),
                                   .y = tg_tensor_2d(c->y, TG_F32, kSlots, kHidden),
                                   .dy = tg_tensor_2d(c->dy, TG_F32, kSlots, kHidden),
                                   .dweights = tg_tensor_2d(c->dweights, TG_F32, kTokens, kTop)};
}

static void test_combine_of_bad_rows(void **state)
{
  cpu_entries *e = *state;
  for (int k = 0; k < e->count; k++) {
    combined c = {.row = {0, 1, 2, 3, -1, 6}, .out = {7}};
    const tg_moe_combine_fwd_args f = forward_of(&c);
    const tg_moe_combine_bwd_args b = backward_of(&c);
    must_fail(e->ctx[k], tg_moe_combine_fwd(e->ctx[k], &f), TG_BAD_ARGUMENT,
              "moe_combine_fwd: row[2, 1]: expected -1 to 5, got 6");
    must_fail(e->ctx[k], tg_moe_combine_bwd(e->ctx[k], &b), TG_BAD_ARGUMENT,
              "moe_combine_bwd: row[2, 1]: expected -1 to 5, got 6");
    c.row[5] = -2;
    must_fail(e->ctx[k], tg_moe_combine_fwd(e->ctx[k], &f), TG_BAD_ARGUMENT,
              "moe_combine_fwd: row[2, 1]: expected -1 to 5, got -2");
    c.row[5] = 5;
    c.slot[4] = 6;
    must_fail(e->ctx[k], tg_moe_combine_bwd(e->ctx[k], &b), TG_BAD_ARGUMENT,
              "moe_combine_bwd: slot[4]: expected 0 to 5, got 6");
    c.slot[4] = -1;
    must_fail(e->ctx[k], tg_moe_combine_bwd(e->ctx[k], &b), TG_BAD_ARGUMENT,
              "moe_combine_bwd: slot[4]: expected 0 to 5, got -1");
    c.slot[0] = 9;
    must_fail(e->ctx[k], tg_moe_combine_bwd(e->ctx[k], &b), TG_BAD_ARGUMENT,
              "moe_combine_bwd: slot[0]: expected 0 to 5, got 9");
    assert_true(c.out[0] == 7);
  }
}

/* In bf16 1 + 3/512 is 1 + 1/128; with 1/256 more, rounding twice and once differ. */
static void test_combine_rounds_before_the_residual(void **state)
{
  cpu_entries *e = *state;
  for (int k = 0; k < e->count; k++) {
    uint16_t y[] = {0x3f80, 0x3bc0}, residual[] = {0x3b80}, out[] = {0};
    int32_t row[] = {0, 1};
    tg_moe_combine_fwd_args a = {.row = tg_tensor_2d(row, TG_I32, 1, 2),
                                 .y = tg_tensor_2d(y, TG_BF16, 2, 1),
                                 .residual = tg_tensor_2d(residual, TG_BF16, 1, 1),
                                 .out = tg_tensor_2d(out, TG_BF16, 1, 1),
                                 .rounding = TG_ROUNDING_ONCE};
    must_run(e->ctx[k], tg_moe_combine_fwd(e->ctx[k], &a));
    assert_int_equal(out[0], 0x3f81);
    a.rounding = TG_ROUNDING_HF;
    must_run(e->ctx[k], tg_moe_combine_fwd(e->ctx[k], &a));
    assert_int_equal(out[0], 0x3f82);
  }
}

/* What belongs together. */
static void test_combine_of_some(void **state)
{
  cpu_entries *e = *state;
  tg_context *ctx = e->ctx[0];
  combined c = {.row = {0, 1, 2, 3, 4, 5}};
  const tg_tensor none = {0};
  tg_moe_combine_bwd_args b = backward_of(&c);
  b.slot = none;
  must_fail(ctx, tg_moe_combine_bwd(ctx, &b), TG_BAD_ARGUMENT,
            "moe_combine_bwd: slot: expected a tensor beside dy, got none");
  b = backward_of(&c);
  b.y = none;
  must_fail(ctx, tg_moe_combine_bwd(ctx, &b), TG_BAD_ARGUMENT,
            "moe_combine_bwd: y: expected a tensor beside dweights, got none");
  b = backward_of(&c);
  b.weights = none;
  must_fail(ctx, tg_moe_combine_bwd(ctx, &b), TG_BAD_ARGUMENT,
            "moe_combine_bwd: weights: expected a tensor beside dweights, got none");
  b = backward_of(&c);
  b.dy = b.dweights = none;
  must_fail(ctx, tg_moe_combine_bwd(ctx, &b), TG_BAD_ARGUMENT,
            "moe_combine_bwd: dy: expected dy or dweights, got none");
  tg_moe_combine_fwd_args f = forward_of(&c);
  f.row.shape[1] = f.weights.shape[1] = 0;
  must_fail(ctx, tg_moe_combine_fwd(ctx, &f), TG_BAD_SHAPE,
            "moe_combine_fwd: row: expected at least 1 row for a token, got 0");
}

/* ---- grouped linear ---- */

typedef struct grouped {
  float x[kTokens * kHidden], weight[kExperts * 2 * kHidden], y[kSlots * 2], dx[kSlots * kHidden];
  float dweight[kExperts * 2 * kHidden];
  int32_t offsets[kExperts + 1], slot[kSlots];
} grouped;

static tg_tensor weights_at(float *data)
{
  return (tg_tensor){.data = data, .dtype = TG_F32, .ndim = 3, .shape = {kExperts, 2, kHidden}};
}

static tg_grouped_linear_fwd_args grouped_forward(grouped *g)
{
  return (tg_grouped_linear_fwd_args){.x = tg_tensor_2d(g->x, TG_F32, kTokens, kHidden),
                                      .weight = weights_at(g->weight),
                                      .offsets = tg_tensor_1d(g->offsets, TG_I32, kExperts + 1),
                                      .slot = tg_tensor_1d(g->slot, TG_I32, kSlots),
                                      .y = tg_tensor_2d(g->y, TG_F32, kSlots, 2),
                                      .slots_per_row = kTop};
}

static tg_grouped_linear_bwd_args grouped_backward(grouped *g)
{
  return (tg_grouped_linear_bwd_args){.dy = tg_tensor_2d(g->y, TG_F32, kSlots, 2),
                                      .x = tg_tensor_2d(g->x, TG_F32, kTokens, kHidden),
                                      .weight = weights_at(g->weight),
                                      .offsets = tg_tensor_1d(g->offsets, TG_I32, kExperts + 1),
                                      .slot = tg_tensor_1d(g->slot, TG_I32, kSlots),
                                      .dx = tg_tensor_2d(g->dx, TG_F32, kSlots, kHidden),
                                      .dweight = weights_at(g->dweight),
                                      .slots_per_row = kTop};
}

/* Both directions, with a workspace of the size that they ask for. */
static void must_refuse_rows(tg_context *ctx, grouped *g, const char *message)
{
  tg_grouped_linear_fwd_args f = grouped_forward(g);
  tg_grouped_linear_bwd_args b = grouped_backward(g);
  char text[128];
  must_run(ctx, tg_grouped_linear_fwd_workspace(ctx, &f, &f.workspace_bytes));
  must_run(ctx, tg_grouped_linear_bwd_workspace(ctx, &b, &b.workspace_bytes));
  f.workspace = aligned_alloc(256, (f.workspace_bytes + 255) / 256 * 256 + 256);
  b.workspace = aligned_alloc(256, (b.workspace_bytes + 255) / 256 * 256 + 256);
  snprintf(text, sizeof text, "grouped_linear_fwd: %s", message);
  must_fail(ctx, tg_grouped_linear_fwd(ctx, &f), TG_BAD_ARGUMENT, text);
  snprintf(text, sizeof text, "grouped_linear_bwd: %s", message);
  must_fail(ctx, tg_grouped_linear_bwd(ctx, &b), TG_BAD_ARGUMENT, text);
  free(f.workspace);
  free(b.workspace);
  assert_true(g->y[0] == 7 && g->dx[0] == 7 && g->dweight[0] == 7);
}

static void test_grouped_linear_of_bad_rows(void **state)
{
  cpu_entries *e = *state;
  for (int k = 0; k < e->count; k++) {
    grouped g = {.offsets = {0, 2, 2, 5, 5}, .slot = {0, 1, 2, 3, 6, -9}, .y = {7}};
    g.dx[0] = g.dweight[0] = 7;
    must_refuse_rows(e->ctx[k], &g, "slot[4]: expected 0 to 5, got 6");
    g.slot[4] = -1;
    must_refuse_rows(e->ctx[k], &g, "slot[4]: expected 0 to 5, got -1");
    g.slot[0] = 8;
    must_refuse_rows(e->ctx[k], &g, "slot[0]: expected 0 to 5, got 8");
    g.offsets[4] = 7;
    must_refuse_rows(e->ctx[k], &g, "offsets[4]: expected 5 to 6, got 7");
    g.offsets[2] = 1;
    must_refuse_rows(e->ctx[k], &g, "offsets[2]: expected 2 to 6, got 1");
    g.offsets[0] = -1;
    must_refuse_rows(e->ctx[k], &g, "offsets[0]: expected 0 to 0, got -1");
  }
}

static void test_grouped_linear_sizes(void **state)
{
  cpu_entries *e = *state;
  grouped g = {.offsets = {0}};
  size_t bytes;
  tg_grouped_linear_fwd_args f = grouped_forward(&g);
  f.slots_per_row = 0;
  must_fail(e->ctx[0], tg_grouped_linear_fwd_workspace(e->ctx[0], &f, &bytes), TG_BAD_ARGUMENT,
            "grouped_linear_fwd: slots_per_row: expected 1 to 2147483647, got 0");
  f = grouped_forward(&g);
  f.weight.shape[0] = 0;
  must_fail(e->ctx[0], tg_grouped_linear_fwd_workspace(e->ctx[0], &f, &bytes), TG_BAD_SHAPE,
            "grouped_linear_fwd: weight: expected 1 to 2^31 - 2 experts, got 0");
  f = grouped_forward(&g);
  f.x.shape[0] = 1 << 30;
  must_fail(e->ctx[0], tg_grouped_linear_fwd_workspace(e->ctx[0], &f, &bytes), TG_BAD_SHAPE,
            "grouped_linear_fwd: x: expected fewer than 2^31 slots, got 1073741824 rows of 2");
}

static void test_grouped_linear_activations(void **state)
{
  cpu_entries *e = *state;
  grouped g = {.offsets = {0}};
  size_t bytes;
  tg_grouped_linear_fwd_args f = grouped_forward(&g);
  f.preactivation = f.y;
  must_fail(e->ctx[0], tg_grouped_linear_fwd_workspace(e->ctx[0], &f, &bytes), TG_BAD_ARGUMENT,
            "grouped_linear_fwd: preactivation: expected none without an activation, got a tensor");
  f.activation = TG_GATED_SWIGLU;
  f.packing = TG_GATE_UP_HALVES;
  must_fail(e->ctx[0], tg_grouped_linear_fwd_workspace(e->ctx[0], &f, &bytes), TG_BAD_SHAPE,
            "grouped_linear_fwd: y: expected f32 [6, 1], got f32 [6, 2]");
  f.y.shape[1] = 1;
  must_run(e->ctx[0], tg_grouped_linear_fwd_workspace(e->ctx[0], &f, &bytes));
  f.alpha = 1;
  must_fail(e->ctx[0], tg_grouped_linear_fwd_workspace(e->ctx[0], &f, &bytes), TG_BAD_ARGUMENT,
            "grouped_linear_fwd: alpha: expected 0 without a clamp, got 1");
  f.activation = TG_GATED_SWIGLU_CLAMPED;
  must_fail(e->ctx[0], tg_grouped_linear_fwd_workspace(e->ctx[0], &f, &bytes), TG_BAD_ARGUMENT,
            "grouped_linear_fwd: limit: expected a finite number > 0, got 0");
  f.limit = 7;
  f.packing = 0;
  must_fail(e->ctx[0], tg_grouped_linear_fwd_workspace(e->ctx[0], &f, &bytes), TG_BAD_ARGUMENT,
            "grouped_linear_fwd: packing: expected 1 to 2, got 0");
  f.packing = TG_GATE_UP_INTERLEAVED;
  f.weight.shape[1] = f.preactivation.shape[1] = 3;
  must_fail(e->ctx[0], tg_grouped_linear_fwd_workspace(e->ctx[0], &f, &bytes), TG_BAD_SHAPE,
            "grouped_linear_fwd: weight: expected an even number of outputs, got 3");
}

int main(void)
{
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_plan),
      cmocka_unit_test(test_plan_of_bad_indices),
      cmocka_unit_test(test_sizes),
      cmocka_unit_test(test_router_of_bad_indices),
      cmocka_unit_test(test_router_of_equal_indices),
      cmocka_unit_test(test_combine_of_bad_rows),
      cmocka_unit_test(test_combine_rounds_before_the_residual),
      cmocka_unit_test(test_combine_of_some),
      cmocka_unit_test(test_grouped_linear_of_bad_rows),
      cmocka_unit_test(test_grouped_linear_sizes),
      cmocka_unit_test(test_grouped_linear_activations),
  };
  return cmocka_run_group_tests(tests, open_entries, close_entries);
}
