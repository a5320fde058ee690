/* Attention of few queries (decoding) on a GPU: random calls with every option, block tables among
 * them, and of single queries, every length up to 700, long caches, equal bits from call to call
 * and in any batch, and what is wrong in the data. The CPU in f32 says what is right. On every
 * entry of the chain; skipped without a GPU. */
#include "attention_entries.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "core/values/half.h"
#include "expect_op.h"

static bool chance(uint64_t *state, int percent)
{
  return attention_below(state, 100) < percent;
}

static attention_config random_config(uint64_t seed)
{
  static const int dims[][2] = {{64, 64},   {128, 128}, {64, 64},   {128, 128}, {40, 40},
                                {96, 96},   {8, 8},     {80, 72},   {120, 128}, {128, 64},
                                {192, 128}, {192, 192}, {256, 256}, {160, 200}, {33, 7}};
  static const int groups[] = {1, 1, 2, 3, 4, 4, 5, 8, 8, 16, 40};
  uint64_t s = seed;
  const int *dim = dims[attention_below(&s, sizeof dims / sizeof dims[0])];
  attention_config c = {.seed = seed, .dim = dim[0], .v_dim = dim[1], .forward_only = true};
  c.dtype = chance(&s, 40) ? TG_F16 : TG_BF16;
  c.batch = 1 + attention_below(&s, 4);
  c.nq = chance(&s, 50) ? 1 : 1 + attention_below(&s, chance(&s, 80) ? 16 : 64);
  c.extent = 1 + attention_below(&s, chance(&s, 70) ? 2000 : 90);
  c.kv_heads = 1 + attention_below(&s, 4);
  c.heads = c.kv_heads * groups[attention_below(&s, sizeof groups / sizeof groups[0])];
  c.causal = chance(&s, 60);
  c.window = chance(&s, 30) ? 1 + (int32_t)attention_below(&s, chance(&s, 50) ? 40 : 600) : 0;
  c.softcap = chance(&s, 15) ? 2.0f + (float)attention_below(&s, 30) : 0;
  c.sinks = chance(&s, 30);
  c.key_start = chance(&s, 25);
  c.key_count = chance(&s, 40);
  c.query_start = chance(&s, 15);
  c.page = chance(&s, 40) ? 1 + attention_below(&s, chance(&s, 50) ? 40 : 300) : 0;
  c.page = c.page && chance(&s, 50) ? 16 : c.page;
  c.layout = chance(&s, 40) ? LAYOUT_HEAD_FIRST : LAYOUT_DENSE;
  c.bad = chance(&s, 30) ? 1 + (int)attention_below(&s, 4) : 0;
  return c;
}

static void test_random_calls(void **state)
{
  attention_entries *f = attention_entries_of(state);
  for (uint64_t seed = 1; seed <= 400; seed++) {
    const attention_config c = random_config(seed);
    attention_check(f, &c);
  }
  assert_int_equal(f->failures, 0);
}

/* A single query a sequence, of up to eight heads that share keys. */
static void test_random_single_queries(void **state)
{
  attention_entries *f = attention_entries_of(state);
  for (uint64_t seed = 1001; seed <= 1250; seed++) {
    attention_config c = random_config(seed);
    uint64_t s = seed;
    c.nq = 1;
    c.dim = c.v_dim = chance(&s, 50) ? 64 : 128;
    c.heads = c.kv_heads * (1 + attention_below(&s, 8));
    c.extent = 1 + attention_below(&s, chance(&s, 20) ? 9000 : 1200);
    c.page = 0;
    attention_check(f, &c);
  }
  assert_int_equal(f->failures, 0);
}

/* Stages, splits and their last keys at every place. */
static void test_every_length(void **state)
{
  attention_entries *f = attention_entries_of(state);
  for (int64_t n = 1; n <= 700; n++) {
    for (int i = 0; i < 2; i++) {
      const int64_t dim = i ? 128 : 64;
      const attention_config c = {
          TG_BF16, 1, 4, 1, 1, n, dim, dim, .seed = (uint64_t)n, .forward_only = true};
      attention_check(f, &c);
    }
  }
  assert_int_equal(f->failures, 0);
}

static const attention_config caches[] = {
    {TG_BF16, 1, 32, 8, 1, 32768, 128, 128, .seed = 1, .causal = true, .forward_only = true},
    {TG_F16, 5, 12, 12, 1, 4096, 64, 64, .seed = 2, .key_count = true, .forward_only = true},
    {TG_BF16, 3, 32, 8, 4, 5000, 128, 128, .seed = 3, .causal = true, .key_count = true,
     .forward_only = true, .page = 16},
    {TG_BF16, 2, 64, 8, 1, 20000, 64, 64, .seed = 4, .causal = true, .window = 128, .sinks = true,
     .forward_only = true},
    {TG_F16, 40, 16, 8, 1, 1500, 128, 128, .seed = 5, .key_count = true, .forward_only = true},
    {TG_BF16, 4, 32, 8, 16, 3000, 128, 128, .seed = 6, .causal = true, .forward_only = true},
    {TG_BF16, 1, 8, 1, 1, 9000, 256, 256, .seed = 7, .causal = true, .forward_only = true},
    {TG_BF16, 70, 16, 8, 1, 300, 64, 64, .seed = 8, .forward_only = true},
    {TG_F16, 40, 16, 2, 1, 512, 128, 128, .seed = 9, .key_start = true, .key_count = true,
     .sinks = true, .forward_only = true},
    {TG_BF16, 6, 21, 7, 1, 3000, 64, 64, .seed = 10, .softcap = 20, .window = 900, .causal = true,
     .query_start = true, .forward_only = true},
};

static void test_long_caches(void **state)
{
  attention_entries *f = attention_entries_of(state);
  for (size_t i = 0; i < sizeof caches / sizeof caches[0]; i++) {
    attention_check(f, &caches[i]);
  }
  assert_int_equal(f->failures, 0);
}

/* ---- equal bits ---- */

typedef struct result_bits {
  void *out, *lse;
} result_bits;

static result_bits take_bits(attention_on_device *d)
{
  const result_bits bits = {malloc(attention_block_bytes(d->a, SLOT_OUT)),
                            malloc(attention_block_bytes(d->a, SLOT_LSE))};
  assert_true(bits.out && bits.lse);
  attention_fetch(d, SLOT_OUT, bits.out);
  attention_fetch(d, SLOT_LSE, bits.lse);
  return bits;
}

static void free_bits(result_bits bits)
{
  free(bits.out);
  free(bits.lse);
}

static void expect_bits(attention_on_device *d, result_bits want, const char *what, int number)
{
  const result_bits got = take_bits(d);
  if (memcmp(got.out, want.out, attention_block_bytes(d->a, SLOT_OUT)) != 0 ||
      memcmp(got.lse, want.lse, attention_block_bytes(d->a, SLOT_LSE)) != 0) {
    attention_print(&d->a->c);
    fail_msg("%s, %s %d: expected the bits of the first call, got others", tg_context_entry(d->ctx),
             what, number);
  }
  free_bits(got);
}

static void spoil_results(attention_on_device *d)
{
  for (int s = SLOT_OUT; s <= SLOT_LSE; s += SLOT_LSE - SLOT_OUT) {
    const size_t bytes = attention_block_bytes(d->a, s);
    void *nan = malloc(bytes);
    assert_non_null(nan);
    memset(nan, 0xff, bytes);
    attention_put(d, s, nan);
    free(nan);
  }
}

/* Sequence b of a tensor of all. */
static tg_tensor alone(tg_tensor t, int64_t b)
{
  if (t.ndim > 0) {
    int64_t step = t.stride[0];
    if (step == 0) { /* contiguous */
      step = 1;
      for (int axis = 1; axis < t.ndim; axis++) {
        step *= t.shape[axis];
      }
    }
    t.data = (char *)t.data + b * step * (int64_t)tg_dtype_bytes(t.dtype);
    t.shape[0] = 1;
  }
  return t;
}

static void run_alone(attention_on_device *d, int64_t b)
{
  tg_attention_fwd_args args = attention_forward_args(d->a, d->block, false);
  args.q = alone(args.q, b);
  if (d->a->c.page == 0) {
    args.k = alone(args.k, b);
    args.v = alone(args.v, b);
  }
  args.out = alone(args.out, b);
  args.lse = alone(args.lse, b);
  args.key_start = alone(args.key_start, b);
  args.key_count = alone(args.key_count, b);
  args.query_start = alone(args.query_start, b);
  args.block_table = alone(args.block_table, b);
  args.workspace = d->workspace;
  args.workspace_bytes = d->workspace_bytes;
  must_run(d->ctx, tg_attention_fwd(d->ctx, &args));
}

static void test_equal_bits(void **state)
{
  const attention_entries *f = attention_entries_of(state);
  for (size_t i = 0; i < sizeof caches / sizeof caches[0]; i++) {
    attention_call a;
    attention_call_make(&a, &caches[i]);
    for (int e = 0; e < f->entries; e++) {
      attention_on_device d;
      attention_upload(&d, &a, f->entry[e]);
      attention_forward_on(&d);
      const result_bits first = take_bits(&d);
      for (int call = 2; call <= 20; call++) {
        spoil_results(&d);
        attention_forward_on(&d);
        expect_bits(&d, first, "call", call);
      }
      spoil_results(&d);
      for (int64_t b = 0; b < a.c.batch; b++) {
        run_alone(&d, b);
      }
      expect_bits(&d, first, "alone, sequences", (int)a.c.batch);
      must_run(d.ctx, tg_context_check(d.ctx));
      free_bits(first);
      attention_release(&d);
    }
    attention_call_free(&a);
  }
}

/* ---- data out of range ---- */

/* Element `index` of a slot becomes `value`: told as `message`, and NaN in the whole sequence and
 * in no other. */
static void expect_fault(attention_on_device *d, int slot, int64_t index, int32_t value, int64_t b,
                         const char *message)
{
  const attention_call *a = d->a;
  int32_t *data = a->narrow[slot], right = data[index];
  data[index] = value;
  attention_put(d, slot, data);
  data[index] = right;
  attention_forward_on(d);
  must_fail(d->ctx, tg_context_check(d->ctx), TG_BAD_ARGUMENT, message);
  const result_bits got = take_bits(d);
  const int64_t each = a->elements[SLOT_OUT] / a->c.batch;
  for (int64_t i = 0; i < a->elements[SLOT_OUT]; i++) {
    const double x = tgi_load(got.out, a->c.dtype, i);
    if ((x != x) != (i / each == b)) {
      fail_msg("%s, out[%d]: expected NaN in sequence %d alone, got %g", message, (int)i, (int)b,
               x);
    }
  }
  free_bits(got);
  attention_put(d, slot, data);
}

static void test_data_out_of_range(void **state)
{
  const attention_entries *f = attention_entries_of(state);
  static const attention_config c = {TG_BF16,
                                     3,
                                     8,
                                     2,
                                     2,
                                     1600,
                                     128,
                                     128,
                                     .seed = 1,
                                     .causal = true,
                                     .window = 300,
                                     .query_start = true,
                                     .forward_only = true,
                                     .page = 16};
  attention_call a;
  attention_call_make(&a, &c);
  int32_t *start = a.narrow[SLOT_QUERY_START];
  start[0] = start[1] = start[2] = 1000; /* sees keys 701 .. 1001 */
  for (int e = 0; e < f->entries; e++) {
    attention_on_device d;
    attention_upload(&d, &a, f->entry[e]);
    for (int i = 0; i < 100; i += 9) { /* seen or not, an entry that holds keys must be right */
      char message[128];
      const int value = i % 2 ? -1 : 303;
      snprintf(message, sizeof message, /* a GPU counts elements through all axes */
               "attention_fwd: block_table[%d]: expected 0 to 302, got %d", 100 + i, value);
      expect_fault(&d, SLOT_BLOCK_TABLE, 100 + i, value, 1, message);
    }
    attention_release(&d);
  }
  attention_call_free(&a);
}

static void test_lengths_out_of_range(void **state)
{
  const attention_entries *f = attention_entries_of(state);
  static const attention_config c = {TG_F16,
                                     3,
                                     8,
                                     2,
                                     1,
                                     1600,
                                     64,
                                     64,
                                     .seed = 2,
                                     .key_start = true,
                                     .key_count = true,
                                     .forward_only = true};
  attention_call a;
  attention_call_make(&a, &c);
  int32_t *start = a.narrow[SLOT_KEY_START], *count = a.narrow[SLOT_KEY_COUNT];
  for (int b = 0; b < 3; b++) {
    start[b] = 100;
    count[b] = 1200;
  }
  for (int e = 0; e < f->entries; e++) {
    attention_on_device d;
    attention_upload(&d, &a, f->entry[e]);
    expect_fault(&d, SLOT_KEY_START, 2, 1601, 2,
                 "attention_fwd: key_start[2]: expected 0 to 1600, got 1601");
    expect_fault(&d, SLOT_KEY_START, 0, -5, 0,
                 "attention_fwd: key_start[0]: expected 0 to 1600, got -5");
    expect_fault(&d, SLOT_KEY_COUNT, 1, 1501, 1,
                 "attention_fwd: key_count[1]: expected 0 to 1500, got 1501");
    expect_fault(&d, SLOT_KEY_COUNT, 1, -1, 1,
                 "attention_fwd: key_count[1]: expected 0 to 1500, got -1");
    attention_release(&d);
  }
  attention_call_free(&a);
}

int main(void)
{
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_random_calls),         cmocka_unit_test(test_random_single_queries),
      cmocka_unit_test(test_every_length),         cmocka_unit_test(test_long_caches),
      cmocka_unit_test(test_equal_bits),           cmocka_unit_test(test_data_out_of_range),
      cmocka_unit_test(test_lengths_out_of_range),
  };
  return cmocka_run_group_tests(tests, attention_set_up, attention_tear_down);
}
