/* SiLU and the gated activations: their rounding policies bit for bit over every bf16 gate, by
 * plain scalar code; the outputs of the classes of transformers; and the forms of gate and up that
 * a call may not mix. */
#include "golden/gated/gated_values.h"

#include "core/values/half.h"
#include "cpu_entries.h"
#include "tegula/tegula.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>

#include <cmocka.h>

#include "expect_op.h"

enum { kAll = 65536 };

/* ---- every gate of a 16-bit format ---- */

typedef enum function { SWIGLU, GEGLU_TANH, GEGLU_ERF, CLAMPED } function;

typedef struct policy_case {
  function function;
  tg_dtype dtype;
  tg_rounding rounding;
} policy_case;

static const float kAlpha = 1.3f, kLimit = 5.3f; /* 5.3 is no 16-bit number */

static tg_tensor row(void *data, tg_dtype dtype, int64_t n)
{
  return tg_tensor_2d(data, dtype, 1, n);
}

static tg_gelu_approximation form(function f)
{
  return f == GEGLU_ERF ? TG_GELU_ERF : TG_GELU_TANH;
}

static tg_status run(tg_context *ctx, const policy_case *c, tg_tensor gate, tg_tensor up,
                     tg_tensor y)
{
  if (c->function == SWIGLU) {
    const tg_swiglu_fwd_args args = {.gate = gate, .up = up, .y = y, .rounding = c->rounding};
    return tg_swiglu_fwd(ctx, &args);
  }
  if (c->function == CLAMPED) {
    const tg_swiglu_clamped_fwd_args args = {
        .gate = gate, .up = up, .y = y, .alpha = kAlpha, .limit = kLimit, .rounding = c->rounding};
    return tg_swiglu_clamped_fwd(ctx, &args);
  }
  const tg_geglu_fwd_args args = {
      .gate = gate, .up = up, .y = y, .approximation = form(c->function), .rounding = c->rounding};
  return tg_geglu_fwd(ctx, &args);
}

/* The activation of every gate in f32, as the op of that name gives it. */
static void activate(tg_context *ctx, function f, float *gate, float *y)
{
  const tg_tensor x = row(gate, TG_F32, kAll), out = row(y, TG_F32, kAll);
  if (f == SWIGLU) {
    assert_int_equal(tg_silu_fwd(ctx, &(tg_silu_fwd_args){.x = x, .y = out}), TG_OK);
  } else {
    const tg_gelu_fwd_args args = {.x = x, .y = out, .approximation = form(f)};
    assert_int_equal(tg_gelu_fwd(ctx, &args), TG_OK);
  }
}

static float step(const policy_case *c, float v)
{
  return c->rounding == TG_ROUNDING_HF ? (float)tgi_round(c->dtype, (double)v) : v;
}

/* From libm's exp; where that overflows f32 the logistic is 0. */
static float logistic(float x)
{
  return x < -88.72284f ? 0 : (float)(1 / (1 + exp(-(double)x)));
}

static float clamped(const policy_case *c, float gate, float up)
{
  const float limit = (float)tgi_round(c->dtype, (double)kLimit);
  const float g = gate > limit ? limit : gate, u = up > limit ? limit : up < -limit ? -limit : up;
  const float s = step(c, logistic(step(c, kAlpha * g)));
  return step(c, u + 1) * (isinf(g) ? -0.0f : step(c, g * s));
}

static uint16_t narrow(tg_dtype t, float v)
{
  return t == TG_BF16 ? tgi_f32_to_bf16(v) : tgi_f32_to_f16(v);
}

/* Distance in places of the format; 0 for two NaNs. */
static int places(tg_dtype t, uint16_t a, uint16_t b)
{
  const int infinity = t == TG_BF16 ? 0x7f80 : 0x7c00;
  const bool nan_a = (a & 0x7fff) > infinity, nan_b = (b & 0x7fff) > infinity;
  const int x = a & 0x8000 ? 0x8000 - a : a, y = b & 0x8000 ? 0x8000 - b : b;
  return nan_a || nan_b ? (nan_a && nan_b ? 0 : kAll) : abs(x - y);
}

typedef struct operands {
  uint16_t gate[kAll], up[kAll], y[kAll];
  float wide[kAll], activated[kAll];
} operands;

static void check_policy(tg_context *ctx, const policy_case *c, operands *o)
{
  const tg_tensor gate = row(o->gate, c->dtype, kAll), up = row(o->up, c->dtype, kAll);
  int moved = 0;
  if (c->function != CLAMPED) {
    activate(ctx, c->function, o->wide, o->activated);
  }
  assert_int_equal(run(ctx, c, gate, up, row(o->y, c->dtype, kAll)), TG_OK);
  for (int i = 0; i < kAll; i++) {
    const float u = (float)tgi_load(o->up, c->dtype, i);
    const float value =
        c->function == CLAMPED ? clamped(c, o->wide[i], u) : step(c, o->activated[i]) * u;
    const uint16_t want = narrow(c->dtype, value);
    const int distance = places(c->dtype, want, o->y[i]);
    moved += distance != 0;
    /* The kernel's logistic may be off by an f32 place. One in some 10000 shows it, as a place of
     * s, which may be two of the product; none does for the policy of GPT-OSS in bf16. */
    const bool gpt_oss = c->dtype == TG_BF16 && c->rounding == TG_ROUNDING_HF;
    if (distance > (c->function == CLAMPED && !gpt_oss ? 2 : 0)) {
      fail_msg("%s, function %d, %s, rounding %d, gate %a, up %a: expected 0x%04x, got 0x%04x",
               tg_context_entry(ctx), (int)c->function, tg_dtype_name(c->dtype), (int)c->rounding,
               (double)o->wide[i], (double)u, want, o->y[i]);
    }
  }
  assert_in_range(moved, 0, 8);
}

static void test_policies(void **state)
{
  static const tg_dtype dtypes[2] = {TG_BF16, TG_F16};
  static operands o;
  const cpu_entries *f = *state;
  for (int d = 0; d < 2; d++) {
    uint64_t s = 1;
    for (int i = 0; i < kAll; i++) {
      s = s * 6364136223846793005u + 1442695040888963407u;
      o.gate[i] = (uint16_t)i;
      o.wide[i] = (float)tgi_load(o.gate, dtypes[d], i);
      tgi_store(o.up, dtypes[d], i, (double)(s >> 11) * 0x1p-49 - 8); /* in [-8, 8) */
    }
    for (int e = 0; e < f->count; e++) {
      for (function k = SWIGLU; k <= CLAMPED; k++) {
        check_policy(f->ctx[e], &(policy_case){k, dtypes[d], TG_ROUNDING_HF}, &o);
        check_policy(f->ctx[e], &(policy_case){k, dtypes[d], TG_ROUNDING_ONCE}, &o);
      }
    }
  }
}

/* ---- gates that are shut ---- */

typedef struct shut_gates {
  float gate[kAll], ones[kAll], y[kAll], dgate[kAll], dup[kAll];
} shut_gates;

static tg_status run_bwd(tg_context *ctx, function f, shut_gates *s)
{
  const tg_tensor dy = row(s->ones, TG_F32, kAll), gate = row(s->gate, TG_F32, kAll);
  const tg_tensor dgate = row(s->dgate, TG_F32, kAll), dup = row(s->dup, TG_F32, kAll);
  if (f == SWIGLU) {
    const tg_swiglu_bwd_args args = {.dy = dy, .gate = gate, .up = dy, .dgate = dgate, .dup = dup};
    return tg_swiglu_bwd(ctx, &args);
  }
  if (f == CLAMPED) {
    const tg_swiglu_clamped_bwd_args args = {.dy = dy,
                                             .gate = gate,
                                             .up = dy,
                                             .dgate = dgate,
                                             .dup = dup,
                                             .alpha = kAlpha,
                                             .limit = kLimit};
    return tg_swiglu_clamped_bwd(ctx, &args);
  }
  const tg_geglu_bwd_args args = {
      .dy = dy, .gate = gate, .up = dy, .dgate = dgate, .dup = dup, .approximation = form(f)};
  return tg_geglu_bwd(ctx, &args);
}

/* Returns how many gates are shut, those at which the forward gives 0. */
static int check_shut(tg_context *ctx, function f, shut_gates *s)
{
  const policy_case c = {f, TG_F32, TG_ROUNDING_ONCE};
  const tg_tensor gate = row(s->gate, TG_F32, kAll), up = row(s->ones, TG_F32, kAll);
  int shut = 0;
  must_run(ctx, run(ctx, &c, gate, up, row(s->y, TG_F32, kAll)));
  must_run(ctx, run_bwd(ctx, f, s));
  for (int i = 0; i < kAll; i++) {
    if (s->gate[i] < -1 && s->y[i] == 0) {
      shut++;
      if (s->dgate[i] != 0 || s->dup[i] != 0) {
        fail_msg("%s, function %d, gate %a: expected no gradient, got dgate %a, dup %a",
                 tg_context_entry(ctx), (int)f, (double)s->gate[i], (double)s->dgate[i],
                 (double)s->dup[i]);
      }
    }
  }
  return shut;
}

/* Every bf16 gate, as f32: no gradient passes where the forward gives 0. */
static void test_shut_gates(void **state)
{
  static shut_gates s;
  const cpu_entries *f = *state;
  for (int i = 0; i < kAll; i++) {
    s.gate[i] = tgi_bf16_to_f32((uint16_t)i);
    s.ones[i] = 1;
  }
  for (int e = 0; e < f->count; e++) {
    for (function k = SWIGLU; k <= CLAMPED; k++) {
      assert_in_range(check_shut(f->ctx[e], k, &s), 15000, 17000);
    }
  }
}

/* Every bf16 value of SiLU is the exact one, rounded; PyTorch's are these too. */
static void test_silu(void **state)
{
  static uint16_t x[kAll], y[kAll];
  const cpu_entries *f = *state;
  for (int i = 0; i < kAll; i++) {
    x[i] = (uint16_t)i;
  }
  for (int e = 0; e < f->count; e++) {
    const tg_silu_fwd_args args = {.x = row(x, TG_BF16, kAll), .y = row(y, TG_BF16, kAll)};
    assert_int_equal(tg_silu_fwd(f->ctx[e], &args), TG_OK);
    for (int i = 0; i < kAll; i++) {
      const double v = tgi_load(x, TG_BF16, i);
      const double exact = v < -88.72284 ? -0.0 : v / (1 + exp(-v));
      const uint16_t want = tgi_f32_to_bf16((float)exact);
      if (places(TG_BF16, want, y[i]) != 0) {
        fail_msg("%s, silu(%a): expected 0x%04x, got 0x%04x", tg_context_entry(f->ctx[e]), v, want,
                 y[i]);
      }
    }
  }
}

/* ---- the classes of transformers ---- */

enum { QWEN3, GPT_OSS, GEMMA, CLASSES };

static void run_classes(tg_context *ctx, uint16_t y[CLASSES][kGoldenCount])
{
  uint16_t gate[kGoldenCount], up[kGoldenCount], packed[2 * kGoldenCount];
  for (int i = 0; i < kGoldenCount; i++) {
    gate[i] = packed[2 * i] = kGoldenGate[i];
    up[i] = packed[2 * i + 1] = kGoldenUp[i];
  }
  const tg_tensor g = row(gate, TG_BF16, kGoldenCount), u = row(up, TG_BF16, kGoldenCount);
  const tg_swiglu_fwd_args qwen3 = {
      .gate = g, .up = u, .y = row(y[QWEN3], TG_BF16, kGoldenCount), .rounding = TG_ROUNDING_HF};
  const tg_swiglu_clamped_fwd_args gpt_oss = {.gate_up = row(packed, TG_BF16, 2 * kGoldenCount),
                                              .y = row(y[GPT_OSS], TG_BF16, kGoldenCount),
                                              .alpha = 1.702f,
                                              .limit = 7,
                                              .packing = TG_GATE_UP_INTERLEAVED,
                                              .rounding = TG_ROUNDING_HF};
  const tg_geglu_fwd_args gemma = {.gate = g,
                                   .up = u,
                                   .y = row(y[GEMMA], TG_BF16, kGoldenCount),
                                   .approximation = TG_GELU_TANH,
                                   .rounding = TG_ROUNDING_HF};
  assert_int_equal(tg_swiglu_fwd(ctx, &qwen3), TG_OK);
  assert_int_equal(tg_swiglu_clamped_fwd(ctx, &gpt_oss), TG_OK);
  assert_int_equal(tg_geglu_fwd(ctx, &gemma), TG_OK);
}

static double exact_geglu(double x, double up)
{
  return x / (1 + exp(-1.5957691216057307 * (x + 0.044715 * x * x * x))) * up;
}

/* PyTorch's GELU loses digits in 1 + tanh(u) left of -2; there, and there alone, outputs may
 * differ, if ours are the nearer ones. */
static void check_gemma(int i, uint16_t got)
{
  const double gate = (double)tgi_bf16_to_f32(kGoldenGate[i]);
  const double exact = exact_geglu(gate, (double)tgi_bf16_to_f32(kGoldenUp[i]));
  const double ours = fabs((double)tgi_bf16_to_f32(got) - exact);
  const double theirs = fabs((double)tgi_bf16_to_f32(kGoldenGemma[i]) - exact);
  if (got != kGoldenGemma[i] && (gate > -2 || ours >= theirs)) {
    fail_msg("GemmaMLP[%d], gate %g: expected 0x%04x, got 0x%04x; exact %g", i, gate,
             kGoldenGemma[i], got, exact);
  }
}

static void test_transformers(void **state)
{
  const cpu_entries *f = *state;
  for (int e = 0; e < f->count; e++) {
    uint16_t y[CLASSES][kGoldenCount];
    run_classes(f->ctx[e], y);
    for (int i = 0; i < kGoldenCount; i++) {
      if (y[QWEN3][i] != kGoldenQwen3[i] || y[GPT_OSS][i] != kGoldenGptOss[i]) {
        fail_msg("%s [%d]: expected Qwen3MLP 0x%04x, GptOssExperts 0x%04x, got 0x%04x, 0x%04x",
                 tg_context_entry(f->ctx[e]), i, kGoldenQwen3[i], kGoldenGptOss[i], y[QWEN3][i],
                 y[GPT_OSS][i]);
      }
      check_gemma(i, y[GEMMA][i]);
    }
  }
}

/* ---- forms ---- */

static void test_fwd_forms(void **state)
{
  const cpu_entries *f = *state;
  tg_context *ctx = f->ctx[0];
  float data[4][8] = {{0}};
  const tg_tensor a = tg_tensor_2d(data[0], TG_F32, 2, 2), b = tg_tensor_2d(data[1], TG_F32, 2, 2);
  const tg_tensor packed = tg_tensor_2d(data[2], TG_F32, 2, 4);
  const tg_tensor odd = tg_tensor_2d(data[2], TG_F32, 2, 3);
  const tg_swiglu_fwd_args good = {.gate = a, .up = a, .y = b, .rounding = TG_ROUNDING_HF};
  must_run(ctx, tg_swiglu_fwd(ctx, &good));
  tg_swiglu_fwd_args args = good;
  args.gate_up = packed;
  must_fail(ctx, tg_swiglu_fwd(ctx, &args), TG_BAD_ARGUMENT,
            "swiglu_fwd: gate_up: expected none beside gate or up, got both");
  args.gate = (tg_tensor){0};
  must_fail(ctx, tg_swiglu_fwd(ctx, &args), TG_BAD_ARGUMENT,
            "swiglu_fwd: gate_up: expected none beside gate or up, got both");
  args.gate_up = (tg_tensor){0};
  must_fail(ctx, tg_swiglu_fwd(ctx, &args), TG_BAD_ARGUMENT,
            "swiglu_fwd: gate: expected a tensor here or in gate_up, got none");
  args = good;
  args.up = (tg_tensor){0};
  must_fail(ctx, tg_swiglu_fwd(ctx, &args), TG_BAD_ARGUMENT,
            "swiglu_fwd: up: expected a tensor beside gate, got none");
  args = good;
  args.packing = TG_GATE_UP_HALVES;
  must_fail(ctx, tg_swiglu_fwd(ctx, &args), TG_BAD_ARGUMENT,
            "swiglu_fwd: packing: expected 0 to 0, got 1");
  args = good;
  args.up.shape[0] = 1;
  must_fail(ctx, tg_swiglu_fwd(ctx, &args), TG_BAD_SHAPE,
            "swiglu_fwd: up: expected f32 [2, 2], got f32 [1, 2]");
  args.up = (tg_tensor){.data = data[3], .dtype = TG_BF16, .ndim = 2, .shape = {2, 2}};
  must_fail(ctx, tg_swiglu_fwd(ctx, &args), TG_BAD_DTYPE,
            "swiglu_fwd: up: expected f32, got bf16 [2, 2]");
  args = (tg_swiglu_fwd_args){
      .gate_up = odd, .y = b, .packing = TG_GATE_UP_HALVES, .rounding = TG_ROUNDING_HF};
  must_fail(ctx, tg_swiglu_fwd(ctx, &args), TG_BAD_SHAPE,
            "swiglu_fwd: gate_up: expected an even number of columns, got 3");
}

static void test_bwd_forms(void **state)
{
  const cpu_entries *f = *state;
  tg_context *ctx = f->ctx[0];
  float data[6][8] = {{0}};
  const tg_tensor a = tg_tensor_2d(data[0], TG_F32, 2, 2), b = tg_tensor_2d(data[1], TG_F32, 2, 2);
  const tg_tensor c = tg_tensor_2d(data[2], TG_F32, 2, 2);
  const tg_tensor packed = tg_tensor_2d(data[3], TG_F32, 2, 4);
  const tg_tensor gradient = tg_tensor_2d(data[4], TG_F32, 2, 4);
  const tg_swiglu_bwd_args apart = {.dy = a, .gate = a, .up = a, .dgate = b, .dup = c};
  const tg_swiglu_bwd_args together = {
      .dy = a, .gate_up = packed, .dgate_up = gradient, .packing = TG_GATE_UP_INTERLEAVED};
  must_run(ctx, tg_swiglu_bwd(ctx, &apart));
  must_run(ctx, tg_swiglu_bwd(ctx, &together));
  tg_swiglu_bwd_args args = apart;
  args.dgate_up = gradient;
  must_fail(ctx, tg_swiglu_bwd(ctx, &args), TG_BAD_ARGUMENT,
            "swiglu_bwd: dgate_up: expected none with gate, got a tensor");
  args = apart;
  args.dgate = args.dup = (tg_tensor){0};
  must_fail(ctx, tg_swiglu_bwd(ctx, &args), TG_BAD_ARGUMENT,
            "swiglu_bwd: dgate: expected a tensor here or in dup, got none");
  args = together;
  args.dgate = b;
  must_fail(ctx, tg_swiglu_bwd(ctx, &args), TG_BAD_ARGUMENT,
            "swiglu_bwd: dgate: expected none with gate_up, got a tensor");
  args = together;
  args.dup = b;
  must_fail(ctx, tg_swiglu_bwd(ctx, &args), TG_BAD_ARGUMENT,
            "swiglu_bwd: dup: expected none with gate_up, got a tensor");
  args = together;
  args.dgate_up = (tg_tensor){0};
  must_fail(ctx, tg_swiglu_bwd(ctx, &args), TG_BAD_ARGUMENT,
            "swiglu_bwd: dgate_up: expected a tensor with gate_up, got none");
}

int main(void)
{
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_silu),         cmocka_unit_test(test_policies),
      cmocka_unit_test(test_transformers), cmocka_unit_test(test_fwd_forms),
      cmocka_unit_test(test_bwd_forms),    cmocka_unit_test(test_shut_gates),
  };
  return cmocka_run_group_tests(tests, open_entries, close_entries);
}
