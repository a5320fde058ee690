/* rms_norm_swiglu's roundings: from the rstd that a kernel reports, plain scalar code computes what
 * the contract words, and the outputs of the class of transformers that HF is named after. */
#include "golden/rms_norm_swiglu/rms_norm_swiglu_values.h"

#include "core/values/half.h"
#include "cpu_entries.h"
#include "tegula/tegula.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>

#include <cmocka.h>

enum { kElements = kGoldenRows * kGoldenCols };

typedef struct gated_call {
  uint16_t x[kElements], gate[kElements], y[kElements];
  uint16_t narrow[kGoldenCols];
  float wide[kGoldenCols], rstd[kGoldenRows];
} gated_call;

/* The golden inputs, in their bf16. */
static void run(tg_context *ctx, gated_call *c, tg_rounding rounding, bool wide)
{
  memcpy(c->x, kGoldenX, sizeof c->x);
  memcpy(c->gate, kGoldenGate, sizeof c->gate);
  memcpy(c->narrow, kGoldenWeight, sizeof c->narrow);
  for (int j = 0; j < kGoldenCols; j++) {
    c->wide[j] = (float)tgi_load(c->narrow, TG_BF16, j);
  }
  const tg_rms_norm_swiglu_fwd_args args = {
      .x = tg_tensor_2d(c->x, TG_BF16, kGoldenRows, kGoldenCols),
      .gate = tg_tensor_2d(c->gate, TG_BF16, kGoldenRows, kGoldenCols),
      .weight = wide ? tg_tensor_1d(c->wide, TG_F32, kGoldenCols)
                     : tg_tensor_1d(c->narrow, TG_BF16, kGoldenCols),
      .y = tg_tensor_2d(c->y, TG_BF16, kGoldenRows, kGoldenCols),
      .rstd = tg_tensor_1d(c->rstd, TG_F32, kGoldenRows),
      .eps = 1e-6f,
      .rounding = rounding};
  assert_int_equal(tg_rms_norm_swiglu_fwd(ctx, &args), TG_OK);
}

/* Number of outputs that are not `want`; none may be further than one place from it. */
static int count_moved(const gated_call *c, const uint16_t *want, const char *what)
{
  int moved = 0;
  for (int i = 0; i < kElements; i++) {
    const int places = abs((int)c->y[i] - (int)want[i]);
    if (places > 1) {
      fail_msg("%s [%d, %d]: expected 0x%04x, got 0x%04x", what, i / kGoldenCols, i % kGoldenCols,
               want[i], c->y[i]);
    }
    moved += places;
  }
  return moved;
}

/* The last places of rstd and of silu may be others than PyTorch's: an output changes only if it
 * lies that close to a tie of bf16, about one in 2^14. One in these 576 is allowed. */
static void test_transformers(void **state)
{
  const cpu_entries *f = *state;
  for (int e = 0; e < f->count; e++) {
    gated_call c;
    run(f->ctx[e], &c, TG_ROUNDING_HF, false);
    assert_in_range(count_moved(&c, kGoldenY, tg_context_entry(f->ctx[e])), 0, 1);
    for (int row = 0; row < kGoldenRows; row++) {
      assert_true(fabsf(c.rstd[row] - kGoldenRstd[row]) <= 0x1p-22f * kGoldenRstd[row]);
    }
    run(f->ctx[e], &c, TG_ROUNDING_HF, true);
    assert_in_range(count_moved(&c, kGoldenYWideWeight, tg_context_entry(f->ctx[e])), 0, 1);
  }
  assert_memory_not_equal(kGoldenY, kGoldenYWideWeight, sizeof kGoldenY);
}

/* From the kernel's rstd, in f32 operations but for silu, which is the exact one rounded to f32. */
static uint16_t expected(const gated_call *c, int i, tg_rounding rounding, bool wide)
{
  const bool hf = rounding == TG_ROUNDING_HF;
  const float gate = (float)tgi_load(c->gate, TG_BF16, i), w = c->wide[i % kGoldenCols];
  float n = (float)tgi_load(c->x, TG_BF16, i) * c->rstd[i / kGoldenCols];
  n = hf ? (float)tgi_round(TG_BF16, n) : n;
  float m = n * w;
  m = hf && !wide ? (float)tgi_round(TG_BF16, m) : m;
  const float silu = (float)((double)gate / (1 + exp(-(double)gate)));
  return tgi_f32_to_bf16(m * silu);
}

static void test_roundings(void **state)
{
  const cpu_entries *f = *state;
  for (int e = 0; e < f->count; e++) {
    for (int k = 0; k < 4; k++) {
      const tg_rounding rounding = k % 2 ? TG_ROUNDING_ONCE : TG_ROUNDING_HF;
      const bool wide = k / 2;
      gated_call c;
      uint16_t want[kElements];
      run(f->ctx[e], &c, rounding, wide);
      for (int i = 0; i < kElements; i++) {
        want[i] = expected(&c, i, rounding, wide);
      }
      assert_in_range(count_moved(&c, want, tg_context_entry(f->ctx[e])), 0, 1);
    }
  }
}

int main(void)
{
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_transformers),
      cmocka_unit_test(test_roundings),
  };
  return cmocka_run_group_tests(tests, open_entries, close_entries);
}
