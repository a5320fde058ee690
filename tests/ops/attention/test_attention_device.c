/* Attention on a GPU where the spec driver's cases are too few (few queries: test_attention_few.c):
 * random calls with every option but block tables, keys in splits, narrow windows, every length up
 * to 300, 131072 tokens, equal bits from call to call and beside another stream, in order. The CPU
 * in f32 says what is right. On every entry of the chain, which hands on what it does not take;
 * skipped without a GPU. */
#include "attention_entries.h"

#include "core/context_state.h"
#include "core/device_state.h"
#include "core/values/half.h"
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "expect_op.h"

/* ---- random calls ---- */

static bool chance(uint64_t *state, int percent)
{
  return attention_below(state, 100) < percent;
}

static attention_config random_config(uint64_t seed, bool large_heads)
{
  static const int small[][2] = {{64, 64},  {128, 128}, {64, 64},  {128, 128}, {40, 40}, {80, 80},
                                 {8, 8},    {24, 24},   {56, 64},  {72, 72},   {96, 96}, {120, 128},
                                 {128, 64}, {64, 128},  {16, 120}, {20, 20},   {33, 7}};
  static const int large[][2] = {{96, 96},   {192, 128}, {192, 192}, {256, 256}, {160, 160},
                                 {200, 176}, {256, 128}, {136, 40},  {88, 88},   {224, 248}};
  uint64_t s = seed;
  const int *dims = large_heads ? large[attention_below(&s, sizeof large / sizeof large[0])]
                                : small[attention_below(&s, sizeof small / sizeof small[0])];
  attention_config c = {.seed = seed, .dim = dims[0], .v_dim = dims[1]};
  c.dtype = chance(&s, 35) ? TG_F16 : TG_BF16;
  c.packed_q = chance(&s, 30);
  c.packed_k = chance(&s, c.packed_q ? 80 : 10);
  const bool packed = c.packed_q || c.packed_k;
  const int64_t most = packed ? 900 : 300;
  c.batch = 1 + attention_below(&s, packed ? 8 : 4);
  c.nq = 1 + attention_below(&s, most);
  c.extent = chance(&s, 50) ? c.nq : 1 + attention_below(&s, most);
  c.kv_heads = 1 + attention_below(&s, 3);
  c.heads = c.kv_heads << attention_below(&s, 3);
  c.causal = chance(&s, 60);
  c.window = chance(&s, 30) ? 1 + (int32_t)attention_below(&s, chance(&s, 50) ? 40 : 200) : 0;
  c.softcap = chance(&s, 15) ? 2.0f + (float)attention_below(&s, 30) : 0;
  c.sinks = chance(&s, 30);
  c.key_start = chance(&s, 15);
  c.key_count = chance(&s, 20);
  c.query_start = chance(&s, 12);
  c.layout = (attention_layout)attention_below(&s, 3);
  if (c.layout == LAYOUT_PACKED && c.packed_q != c.packed_k) {
    c.layout = LAYOUT_DENSE;
  }
  c.extent = c.layout == LAYOUT_PACKED ? c.nq : c.extent;
  c.bad = chance(&s, 30) ? 1 + (int)attention_below(&s, 3) : 0;
  c.forward_only = c.bad > 0 && chance(&s, 40);
  c.any_order = chance(&s, 50);
  return c;
}

static void test_random_calls(void **state)
{
  attention_entries *f = attention_entries_of(state);
  for (uint64_t seed = 1; seed <= 200; seed++) {
    const attention_config c = random_config(seed, seed % 4 == 0);
    attention_check(f, &c);
  }
  assert_int_equal(f->failures, 0);
}

/* Few tiles of queries against many keys, which Hopper's entry splits. */
static void test_splits(void **state)
{
  static const int dims[][2] = {{64, 64}, {128, 128}, {48, 64}, {128, 40}, {64, 128}, {96, 120}};
  attention_entries *f = attention_entries_of(state);
  for (uint64_t seed = 1; seed <= 80; seed++) {
    uint64_t s = seed;
    attention_config c = {.seed = seed, .dtype = chance(&s, 50) ? TG_F16 : TG_BF16};
    const int *dim = dims[attention_below(&s, sizeof dims / sizeof dims[0])];
    c.dim = dim[0];
    c.v_dim = dim[1];
    c.batch = 1 + attention_below(&s, 3);
    c.kv_heads = 1 + attention_below(&s, 2);
    c.heads = c.kv_heads << attention_below(&s, 2);
    c.nq = 65 + attention_below(&s, 600);
    c.extent = 1000 + attention_below(&s, chance(&s, 80) ? 1500 : 4000);
    c.causal = chance(&s, 60);
    if (chance(&s, 10)) { /* queries before the first key */
      c.nq = c.extent + attention_below(&s, 300);
      c.heads = c.kv_heads = 1;
    }
    if (seed == 80) { /* more tiles than multiprocessors make a round of */
      c.batch = c.heads = c.kv_heads = 1;
      c.nq = c.extent = 10300;
      c.dim = c.v_dim = 64;
    }
    c.sinks = chance(&s, 30);
    c.bad = chance(&s, 40) ? 1 + (int)attention_below(&s, 3) : 0;
    c.forward_only = true;
    attention_check(f, &c);
  }
  assert_int_equal(f->failures, 0);
}

/* Causal windows of a block or two of keys, which Hopper's entry takes whole where queries begin at
 * a block's first key. */
static void test_windows(void **state)
{
  static const int dims[][2] = {{64, 64}, {64, 64}, {48, 64}, {40, 40}, {64, 16}};
  attention_entries *f = attention_entries_of(state);
  for (uint64_t seed = 1; seed <= 120; seed++) {
    uint64_t s = seed;
    attention_config c = {.seed = seed, .causal = true, .dtype = chance(&s, 40) ? TG_F16 : TG_BF16};
    const int *dim = dims[attention_below(&s, sizeof dims / sizeof dims[0])];
    c.dim = dim[0];
    c.v_dim = dim[1];
    c.batch = 1 + attention_below(&s, 2);
    c.kv_heads = 1 + attention_below(&s, 2);
    c.heads = c.kv_heads << attention_below(&s, 3);
    c.nq = 17 + attention_below(&s, 700);
    const int64_t before = attention_below(&s, 6) - 2; /* blocks; < 0: queries see no key */
    c.extent = c.nq + 64 * before > 0 ? c.nq + 64 * before : c.nq;
    c.extent += chance(&s, 15) ? attention_below(&s, 64) : 0;
    c.window = 62 + (int32_t)attention_below(&s, 72);
    c.sinks = chance(&s, 30);
    c.bad = chance(&s, 40) ? 1 + (int)attention_below(&s, 3) : 0;
    c.forward_only = c.bad > 0 && chance(&s, 40);
    c.any_order = chance(&s, 50);
    attention_check(f, &c);
  }
  assert_int_equal(f->failures, 0);
}

/* f32 by TF32. */
static void test_random_tf32(void **state)
{
  attention_entries *f = attention_entries_of(state);
  for (uint64_t seed = 1; seed <= 120; seed++) {
    attention_config c = random_config(seed, seed % 4 == 0);
    c.dtype = TG_F32;
    attention_check(f, &c);
  }
  assert_int_equal(f->failures, 0);
}

static void test_many_tiles(void **state)
{
  attention_entries *f = attention_entries_of(state);
  static const attention_config cases[] = {
      {TG_BF16, 1, 16, 4, 2048, 2048, 128, 128, .seed = 1, .causal = true},
      {TG_F16, 1, 8, 8, 2048, 2048, 64, 64, .seed = 2},
      {TG_BF16, 3, 16, 4, 1111, 2222, 128, 128, .seed = 3, .window = 128, .causal = true},
      {TG_BF16, 3, 16, 4, 1111, 2222, 64, 64, .seed = 4, .window = 128, .causal = true,
       .sinks = true},
      {TG_F16, 16, 8, 8, 500, 500, 96, 96, .seed = 5, .causal = true},
      {TG_BF16, 1, 8, 2, 2048, 2048, 192, 128, .seed = 6, .causal = true},
      {TG_F16, 1, 8, 8, 1000, 1500, 256, 256, .seed = 7},
      {TG_BF16, 2, 4, 2, 1111, 777, 192, 192, .seed = 8, .window = 128},
      {TG_BF16, 1, 16, 4, 2048, 2048, 128, 128, .seed = 9, .causal = true, .any_order = true},
      {TG_F16, 4, 16, 8, 1500, 1500, 128, 128, .seed = 10, .any_order = true},
      {TG_BF16, 1, 8, 8, 2048, 2048, 64, 64, .seed = 11, .any_order = true},
      {TG_F16, 16, 8, 8, 500, 500, 96, 96, .seed = 12, .causal = true, .any_order = true},
      {TG_BF16, 5, 8, 4, 3000, 3000, 128, 128, .seed = 13, .causal = true, .packed_q = true,
       .packed_k = true, .any_order = true},
      {TG_F32, 1, 16, 4, 2048, 2048, 128, 128, .seed = 14, .causal = true},
      {TG_F32, 2, 8, 8, 1500, 1700, 64, 64, .seed = 15},
      {TG_F32, 3, 8, 2, 1111, 2222, 96, 96, .seed = 16, .window = 128, .causal = true},
      /* sums of dq in two halves of the keys */
      {TG_BF16, 2, 4, 2, 700, 2000, 128, 128, .seed = 17},
      {TG_F16, 1, 8, 8, 2048, 2048, 128, 128, .seed = 18},
      {TG_BF16, 1, 4, 2, 1500, 1100, 96, 96, .seed = 19, .bad = 2},
  };
  for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
    attention_check(f, &cases[i]);
  }
  assert_int_equal(f->failures, 0);
}

/* Tiles and their last rows and columns at every place. */
static void test_every_length(void **state)
{
  attention_entries *f = attention_entries_of(state);
  for (int64_t n = 1; n <= 300; n++) {
    for (int i = 0; i < 12; i++) { /* heads of 64 to 256; of f32 to 128 */
      const int64_t dim = 64 * (i / 2 % 4 + 1);
      const attention_config c = {
          i < 8 ? TG_BF16 : TG_F32, 1, 1, 1, n, n, dim, dim, .seed = (uint64_t)n, .causal = i % 2};
      attention_check(f, &c);
    }
  }
  assert_int_equal(f->failures, 0);
}

/* ---- equal bits ---- */

enum { kGradients = 3 };

typedef struct gradient_bits {
  void *bits[kGradients];
} gradient_bits;

static void take_bits(attention_on_device *d, gradient_bits *g)
{
  for (int i = 0; i < kGradients; i++) {
    g->bits[i] = malloc(attention_block_bytes(d->a, SLOT_DQ + i));
    attention_fetch(d, SLOT_DQ + i, g->bits[i]);
  }
}

static void free_bits(gradient_bits *g)
{
  for (int i = 0; i < kGradients; i++) {
    free(g->bits[i]);
  }
}

static void expect_bits(attention_on_device *d, const gradient_bits *want, int call)
{
  gradient_bits got;
  take_bits(d, &got);
  for (int i = 0; i < kGradients; i++) {
    if (memcmp(got.bits[i], want->bits[i], attention_block_bytes(d->a, SLOT_DQ + i)) != 0) {
      attention_print(&d->a->c);
      fail_msg("%s, gradient %d, call %d: expected the bits of the first call, got others",
               tg_context_entry(d->ctx), i, call);
    }
  }
  free_bits(&got);
}

static const attention_config repeated[] = {
    {TG_BF16, 2, 8, 2, 1500, 1500, 128, 128, .seed = 1},
    {TG_BF16, 2, 8, 2, 1500, 1500, 128, 128, .seed = 2, .causal = true},
    {TG_F16, 4, 6, 6, 1000, 1000, 64, 64, .seed = 3, .causal = true},
    {TG_BF16, 1, 8, 1, 700, 1300, 96, 96, .seed = 4, .causal = true, .window = 200, .sinks = true},
    {TG_BF16, 2, 8, 2, 900, 1500, 192, 128, .seed = 5},
    {TG_F16, 4, 4, 4, 1000, 1000, 256, 256, .seed = 6, .causal = true},
    {TG_F16, 4, 16, 8, 1100, 1100, 128, 128, .seed = 7, .causal = true}, /* no parts */
    {TG_BF16, 5, 8, 4, 2000, 2000, 128, 128, .seed = 8, .causal = true, .packed_q = true,
     .packed_k = true}, /* parts */
    {TG_F32, 2, 8, 2, 900, 900, 128, 128, .seed = 9, .causal = true},
    {TG_F32, 3, 4, 4, 700, 1000, 64, 64, .seed = 10},
};

static void test_equal_calls(void **state)
{
  const attention_entries *f = attention_entries_of(state);
  for (size_t i = 0; i < sizeof repeated / sizeof repeated[0]; i++) {
    attention_call a;
    attention_call_make(&a, &repeated[i]);
    for (int e = 0; e < f->entries; e++) {
      attention_on_device d;
      gradient_bits first;
      attention_upload(&d, &a, f->entry[e]);
      attention_forward_on(&d);
      attention_backward_on(&d);
      take_bits(&d, &first);
      for (int call = 2; call <= 100; call++) {
        attention_backward_on(&d);
        expect_bits(&d, &first, call);
      }
      must_run(d.ctx, tg_context_check(d.ctx));
      free_bits(&first);
      attention_release(&d);
    }
    attention_call_free(&a);
  }
}

/* Two contexts, each on a stream of its own, give what each gives alone. */
static void test_two_streams(void **state)
{
  const attention_entries *f = attention_entries_of(state);
  attention_call a[2];
  for (int i = 0; i < 2; i++) {
    attention_call_make(&a[i], &repeated[1 + i]);
  }
  for (int e = 0; e < f->entries; e++) {
    attention_on_device d[2];
    gradient_bits alone[2];
    void *stream[2];
    for (int i = 0; i < 2; i++) {
      tg_context *ctx = attention_gpu_context(tg_context_entry(f->entry[e]));
      assert_non_null(ctx);
      must_run(ctx, tgi_device_stream_create(ctx, &stream[i]));
      must_run(ctx, tg_context_set_stream(ctx, stream[i]));
      attention_upload(&d[i], &a[i], ctx);
      attention_forward_on(&d[i]);
      attention_backward_on(&d[i]);
      take_bits(&d[i], &alone[i]);
    }
    for (int call = 0; call < 20; call++) {
      for (int step = 0; step < 6; step++) {
        attention_forward_on(&d[step % 2]);
        attention_backward_on(&d[step % 2]);
      }
      expect_bits(&d[0], &alone[0], call);
      expect_bits(&d[1], &alone[1], call);
    }
    for (int i = 0; i < 2; i++) {
      tg_context *ctx = d[i].ctx;
      must_run(ctx, tg_context_check(ctx));
      attention_release(&d[i]);
      free_bits(&alone[i]);
      must_run(ctx, tg_context_set_stream(ctx, NULL));
      tgi_device_stream_destroy(ctx, stream[i]);
      tg_context_destroy(ctx);
    }
  }
  attention_call_free(&a[0]);
  attention_call_free(&a[1]);
}

/* ---- a long sequence: rows of it, each as a call of its own ---- */

enum { kLong = 131072, kHeads = 2, kDim = 128, kSamples = 12 };

static const int32_t sampled[kSamples] = {0,     1,     127,   128,    40961,  65535,
                                          65536, 98304, 99999, 120000, 131070, 131071};

/* Row i of a dense view [1, rows, ..]. */
static tg_tensor row_of(tg_tensor t, int64_t i)
{
  t.data = (char *)t.data + i * t.stride[1] * (int64_t)tg_dtype_bytes(t.dtype);
  t.shape[1] = 1;
  return t;
}

static void expect_row(const tg_context *ctx, const char *what, const attention_call *a, int slot,
                       int32_t row, const float *want)
{
  const int64_t n = a->view[slot].stride[1];
  const uint16_t *got = (const uint16_t *)a->narrow[slot] + row * n;
  if (!attention_row_agrees(got, a->c.dtype, want, n)) {
    fail_msg("%s, %s[%d]: expected %.6g %.6g .., got %.6g %.6g ..", tg_context_entry(ctx), what,
             row, (double)want[0], (double)want[1], tgi_load(got, a->c.dtype, 0),
             tgi_load(got, a->c.dtype, 1));
  }
}

/* A query alone: out, lse and dq. */
static void check_query(const attention_entries *f, const tg_context *ctx, const attention_call *a,
                        int32_t row)
{
  float out[kHeads * kDim], dq[kHeads * kDim], lse[kHeads], all_lse[kHeads];
  const int64_t lse_shape[3] = {1, kHeads, 1};
  tg_attention_fwd_args g = attention_forward_args(a, a->wide, true);
  g.q = row_of(g.q, row);
  g.out = tg_tensor_4d(out, TG_F32, 1, 1, kHeads, kDim);
  g.lse = tg_tensor_view(lse, TG_F32, 3, lse_shape);
  g.query_start = tg_tensor_1d(&row, TG_I32, 1);
  attention_run_forward(f->cpu, g);
  expect_row(ctx, "out", a, SLOT_OUT, row, out);
  for (int h = 0; h < kHeads; h++) {
    all_lse[h] = ((const float *)a->narrow[SLOT_LSE])[(int64_t)h * kLong + row];
    if (!(fabsf(all_lse[h] - lse[h]) <= 2e-5f * fmaxf(1, fabsf(lse[h])))) {
      fail_msg("%s, lse[%d,%d]: expected %.9g, got %.9g", tg_context_entry(ctx), h, row,
               (double)lse[h], (double)all_lse[h]);
    }
  }
  tg_attention_bwd_args b = attention_backward_args(a, a->wide, true);
  b.q = g.q;
  b.out = row_of(b.out, row);
  b.dout = row_of(b.dout, row);
  b.lse = tg_tensor_view(all_lse, TG_F32, 3, lse_shape);
  b.query_start = g.query_start;
  b.dq = tg_tensor_4d(dq, TG_F32, 1, 1, kHeads, kDim);
  b.dk = b.dv = (tg_tensor){0};
  attention_run_backward(f->cpu, b);
  expect_row(ctx, "dq", a, SLOT_DQ, row, dq);
}

/* A key alone: dk and dv. As row 0 of an extent of one, `row` rows before query 0's. */
static void check_key(const attention_entries *f, const tg_context *ctx, const attention_call *a,
                      int32_t row)
{
  float dk[kDim], dv[kDim];
  int32_t start = -row;
  tg_attention_bwd_args b = attention_backward_args(a, a->wide, true);
  b.k = row_of(b.k, row);
  b.v = row_of(b.v, row);
  b.query_start = tg_tensor_1d(&start, TG_I32, 1);
  b.dq = (tg_tensor){0};
  b.dk = tg_tensor_4d(dk, TG_F32, 1, 1, 1, kDim);
  b.dv = tg_tensor_4d(dv, TG_F32, 1, 1, 1, kDim);
  attention_run_backward(f->cpu, b);
  expect_row(ctx, "dk", a, SLOT_DK, row, dk);
  expect_row(ctx, "dv", a, SLOT_DV, row, dv);
}

static void test_long_sequence(void **state)
{
  const attention_entries *f = attention_entries_of(state);
  static const attention_config c = {TG_BF16, 1,    kHeads, 1,         kLong,
                                     kLong,   kDim, kDim,   .seed = 1, .causal = true};
  attention_call a;
  attention_call_make(&a, &c);
  for (int e = 0; e < f->entries; e++) {
    attention_on_device d;
    attention_upload(&d, &a, f->entry[e]);
    attention_forward_on(&d);
    attention_backward_on(&d);
    must_run(d.ctx, tg_context_check(d.ctx));
    for (int s = SLOT_OUT; s <= SLOT_LSE; s++) {
      attention_fetch(&d, s, a.narrow[s]);
      attention_widen(&a, s);
    }
    attention_release(&d);
    for (int i = 0; i < kSamples; i++) {
      check_query(f, f->entry[e], &a, sampled[i]);
      check_key(f, f->entry[e], &a, sampled[i]);
    }
  }
  attention_call_free(&a);
}

int main(void)
{
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_random_calls),  cmocka_unit_test(test_splits),
      cmocka_unit_test(test_windows),       cmocka_unit_test(test_random_tf32),
      cmocka_unit_test(test_many_tiles),    cmocka_unit_test(test_every_length),
      cmocka_unit_test(test_equal_calls),   cmocka_unit_test(test_two_streams),
      cmocka_unit_test(test_long_sequence),
  };
  return cmocka_run_group_tests(tests, attention_set_up, attention_tear_down);
}
