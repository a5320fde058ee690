/* The rotations bit for bit: plain scalar code computes every output of rope and qk_norm_rope as
 * their contracts word it, for every dtype, width of the tables, pairing and rounding. And what the
 * specs cannot say: parts of a packed projection in place, heads before tokens, absent keys. */
#include "core/values/half.h"
#include "cpu_entries.h"
#include "tegula/tegula.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>

#include <cmocka.h>

enum {
  kBatch = 2,
  kSeq = 3,
  kHeads = 3,
  kKvHeads = 2,
  kDim = 52,
  kRotary = 44, /* one vector and a part of AVX-512's, and a rest of the head */
  kOffset = 2,
  kTableRows = kOffset + kSeq + 4,
  kElements = kBatch * kSeq * kHeads * kDim,
};

static void fill(void *data, tg_dtype dtype, int64_t n, uint64_t seed)
{
  uint64_t s = seed;
  for (int64_t i = 0; i < n; i++) {
    s = s * 6364136223846793005u + 1442695040888963407u;
    tgi_store(data, dtype, i, (double)(s >> 11) * 0x1p-51 - 2);
  }
}

/* A way to call either op. */
typedef struct policy {
  tg_dtype x, table, weight;
  bool wide, batched;
  tg_rope_pairing pairing;
  tg_rounding rounding;
} policy;

/* Memory for one call; room for any dtype. */
static double x_memory[kElements], y_memory[kElements], weight_memory[kDim];
static double cos_memory[kBatch * kTableRows * kRotary], sin_memory[kBatch * kTableRows * kRotary];
static float rstd_memory[kBatch * kSeq * kHeads];

static tg_tensor table_view(const policy *p, void *data)
{
  const int64_t shape[3] = {p->batched ? kBatch : 1, kTableRows, p->wide ? kRotary : kRotary / 2};
  return tg_tensor_view(data, p->table, 3, shape);
}

/* NaN in every row of the tables that no token reads. */
static void fill_table(const policy *p, void *data, uint64_t seed)
{
  const tg_tensor t = table_view(p, data);
  const int64_t width = t.shape[2];
  fill(data, p->table, t.shape[0] * kTableRows * width, seed);
  for (int64_t i = 0; i < t.shape[0] * kTableRows * width; i++) {
    const int64_t row = i / width % kTableRows;
    if (row < kOffset || row >= kOffset + kSeq) {
      tgi_store(data, p->table, i, NAN);
    }
  }
}

/* What a step of the forward leaves of a value: f32, or x's dtype. */
static float step(const policy *p, float v)
{
  return p->rounding == TG_ROUNDING_HF ? (float)tgi_round(p->x, (double)v) : v;
}

static float table_value(const policy *p, const void *table, int64_t token, int64_t j)
{
  const int64_t b = p->batched ? token / kSeq : 0, row = token % kSeq + kOffset;
  const int64_t pair = p->pairing == TG_ROPE_HALVES ? j % (kRotary / 2) : j / 2;
  const int64_t width = p->wide ? kRotary : kRotary / 2;
  return (float)tgi_load(table, p->table, (b * kTableRows + row) * width + (p->wide ? j : pair));
}

/* Element j of a head whose values before the rotation are z. */
static float expected(const policy *p, const float *z, int64_t token, int64_t j)
{
  if (j >= kRotary) {
    return (float)tgi_round(p->x, (double)z[j]);
  }
  const int64_t half = kRotary / 2;
  const bool halves = p->pairing == TG_ROPE_HALVES, first = halves ? j < half : j % 2 == 0;
  const int64_t distance = halves ? half : 1;
  const float partner = z[first ? j + distance : j - distance];
  const float own = step(p, z[j] * table_value(p, cos_memory, token, j));
  const float other = step(p, partner * table_value(p, sin_memory, token, j));
  return (float)tgi_round(p->x, (double)(first ? own - other : own + other));
}

static void compare(const tg_context *ctx, const policy *p, int heads, bool normed)
{
  for (int64_t i = 0; i < (int64_t)kBatch * kSeq * heads * kDim; i++) {
    const int64_t head = i / kDim, token = head / heads;
    float z[kDim];
    for (int64_t j = 0; j < kDim; j++) {
      z[j] = (float)tgi_load(x_memory, p->x, head * kDim + j);
      if (normed) {
        const float w = (float)tgi_load(weight_memory, p->weight, j);
        z[j] = step(p, step(p, z[j] * rstd_memory[head]) * w);
      }
    }
    const float want = expected(p, z, token, i % kDim), got = (float)tgi_load(y_memory, p->x, i);
    if (tgi_float_bits(got) != tgi_float_bits(want)) {
      fail_msg("%s, %s, tables %s %s, pairing %d, rounding %d, normed %d, [%lld]: expected %.9g, "
               "got %.9g",
               tg_context_entry(ctx), tg_dtype_name(p->x), tg_dtype_name(p->table),
               p->wide ? "wide" : "narrow", (int)p->pairing, (int)p->rounding, (int)normed,
               (long long)i, (double)want, (double)got);
    }
  }
}

static void check_rope(tg_context *ctx, const policy *p)
{
  const tg_tensor x = tg_tensor_4d(x_memory, p->x, kBatch, kSeq, kHeads, kDim);
  const tg_tensor y = tg_tensor_4d(y_memory, p->x, kBatch, kSeq, kHeads, kDim);
  const tg_rope_fwd_args args = {.q = x,
                                 .cos = table_view(p, cos_memory),
                                 .sin = table_view(p, sin_memory),
                                 .q_out = y,
                                 .rotary_dim = kRotary,
                                 .position_offset = kOffset,
                                 .pairing = p->pairing,
                                 .rounding = p->rounding};
  assert_int_equal(tg_rope_fwd(ctx, &args), TG_OK);
  compare(ctx, p, kHeads, false);
}

/* The values serve as q, and then as k with fewer heads. */
static void check_qk_norm_rope(tg_context *ctx, const policy *p, bool as_k)
{
  static double other_memory[kElements], other_out[kElements];
  const tg_tensor weight = tg_tensor_1d(weight_memory, p->weight, kDim);
  const int heads = as_k ? kKvHeads : kHeads;
  const int64_t rstd_shape[3] = {kBatch, kSeq, heads};
  const tg_tensor rstd = tg_tensor_view(rstd_memory, TG_F32, 3, rstd_shape);
  const tg_tensor x = tg_tensor_4d(x_memory, p->x, kBatch, kSeq, heads, kDim);
  const tg_tensor y = tg_tensor_4d(y_memory, p->x, kBatch, kSeq, heads, kDim);
  const tg_tensor other = tg_tensor_4d(other_memory, p->x, kBatch, kSeq, 1, kDim);
  const tg_tensor out = tg_tensor_4d(other_out, p->x, kBatch, kSeq, 1, kDim);
  tg_qk_norm_rope_fwd_args args = {.q = as_k ? other : x,
                                   .k = as_k ? x : other,
                                   .q_weight = weight,
                                   .k_weight = weight,
                                   .cos = table_view(p, cos_memory),
                                   .sin = table_view(p, sin_memory),
                                   .q_out = as_k ? out : y,
                                   .k_out = as_k ? y : out,
                                   .eps = 1e-6f,
                                   .rotary_dim = kRotary,
                                   .position_offset = kOffset,
                                   .pairing = p->pairing,
                                   .rounding = p->rounding};
  *(as_k ? &args.k_rstd : &args.q_rstd) = rstd;
  assert_int_equal(tg_qk_norm_rope_fwd(ctx, &args), TG_OK);
  compare(ctx, p, heads, true);
}

static void check_policy(tg_context *ctx, const policy *p)
{
  fill(x_memory, p->x, kElements, 1);
  fill(weight_memory, p->weight, kDim, 2);
  fill_table(p, cos_memory, 3);
  fill_table(p, sin_memory, 4);
  check_rope(ctx, p);
  check_qk_norm_rope(ctx, p, false);
  check_qk_norm_rope(ctx, p, true);
}

static void test_policies(void **state)
{
  static const tg_dtype dtypes[] = {TG_F32, TG_F16, TG_BF16};
  const cpu_entries *f = *state;
  for (int e = 0; e < f->count; e++) {
    for (int k = 0; k < 3 * 64; k++) {
      const tg_dtype x = dtypes[k / 64];
      const policy p = {.x = x,
                        .table = k & 1 ? TG_F32 : x,
                        .weight = k & 2 ? TG_F32 : x,
                        .wide = k & 4,
                        .batched = k & 8,
                        .pairing = k & 16 ? TG_ROPE_INTERLEAVED : TG_ROPE_HALVES,
                        .rounding = k & 32 ? TG_ROUNDING_ONCE : TG_ROUNDING_HF};
      check_policy(f->ctx[e], &p);
    }
  }
}

/* ---- views ---- */

static const policy kPlain = {.x = TG_F32,
                              .table = TG_F32,
                              .wide = true,
                              .pairing = TG_ROPE_HALVES,
                              .rounding = TG_ROUNDING_ONCE};

static tg_rope_fwd_args rope_call(tg_tensor q, tg_tensor k, tg_tensor q_out, tg_tensor k_out)
{
  return (tg_rope_fwd_args){.q = q,
                            .k = k,
                            .cos = table_view(&kPlain, cos_memory),
                            .sin = table_view(&kPlain, sin_memory),
                            .q_out = q_out,
                            .k_out = k_out,
                            .rotary_dim = kRotary,
                            .position_offset = kOffset,
                            .pairing = TG_ROPE_HALVES,
                            .rounding = TG_ROUNDING_ONCE};
}

/* Heads first .. first + heads - 1 of a packed projection [batch, seq, all heads, dim]. */
static tg_tensor part(float *packed, int first, int heads, int all)
{
  tg_tensor t = tg_tensor_4d(packed + first * kDim, TG_F32, kBatch, kSeq, heads, kDim);
  const int64_t stride[4] = {(int64_t)kSeq * all * kDim, (int64_t)all * kDim, kDim, 1};
  memcpy(t.stride, stride, sizeof stride);
  return t;
}

static void same(const float *got, const float *want, const char *what)
{
  for (int j = 0; j < kDim; j++) {
    if (tgi_float_bits(got[j]) != tgi_float_bits(want[j])) {
      fail_msg("%s[%d]: expected %.9g, got %.9g", what, j, (double)want[j], (double)got[j]);
    }
  }
}

/* q and k turned in place inside q|k|v give what they give apart; v is left alone. The same heads
 * in [batch, heads, seq, dim], seen through strides, too. */
static void test_views(void **state)
{
  enum { kAll = kHeads + 2 * kKvHeads };
  static float packed[kBatch * kSeq * kAll * kDim], apart[kBatch * kSeq * kAll * kDim];
  static float before[kBatch * kSeq * kAll * kDim], first[kBatch * kHeads * kSeq * kDim];
  const cpu_entries *f = *state;
  fill_table(&kPlain, cos_memory, 3);
  fill_table(&kPlain, sin_memory, 4);
  fill(before, TG_F32, kBatch * kSeq * kAll * kDim, 9);
  for (int e = 0; e < f->count; e++) {
    memcpy(packed, before, sizeof packed);
    tg_rope_fwd_args args =
        rope_call(part(before, 0, kHeads, kAll), part(before, kHeads, kKvHeads, kAll),
                  part(apart, 0, kHeads, kAll), part(apart, kHeads, kKvHeads, kAll));
    assert_int_equal(tg_rope_fwd(f->ctx[e], &args), TG_OK);
    args.q = args.q_out = part(packed, 0, kHeads, kAll);
    args.k = args.k_out = part(packed, kHeads, kKvHeads, kAll);
    assert_int_equal(tg_rope_fwd(f->ctx[e], &args), TG_OK);
    args = rope_call(part(before, 0, kHeads, kAll), (tg_tensor){0},
                     tg_tensor_4d(first, TG_F32, kBatch, kSeq, kHeads, kDim), (tg_tensor){0});
    const int64_t stride[4] = {kHeads * kSeq * kDim, kDim, kSeq * kDim, 1};
    memcpy(args.q_out.stride, stride, sizeof stride);
    assert_int_equal(tg_rope_fwd(f->ctx[e], &args), TG_OK);
    for (int i = 0; i < kBatch * kSeq * kAll; i++) {
      const int h = i % kAll, t = i / kAll % kSeq, b = i / kAll / kSeq;
      const float *want = h < kHeads + kKvHeads ? apart + i * kDim : before + i * kDim;
      same(packed + i * kDim, want, "packed");
      if (h < kHeads) {
        same(first + ((b * kHeads + h) * kSeq + t) * kDim, want, "heads first");
      }
    }
  }
}

static void refuse(tg_context *ctx, const tg_rope_fwd_args *args, tg_status status,
                   const char *message)
{
  assert_int_equal(tg_rope_fwd(ctx, args), status);
  assert_string_equal(tg_context_message(ctx), message);
}

/* k goes with k_out; widths and rows of the tables. */
static void test_refusals(void **state)
{
  tg_context *ctx = ((const cpu_entries *)*state)->ctx[0];
  const tg_tensor q = tg_tensor_4d(x_memory, TG_F32, kBatch, kSeq, kHeads, kDim), none = {0};
  const tg_tensor q_out = tg_tensor_4d(y_memory, TG_F32, kBatch, kSeq, kHeads, kDim);
  tg_rope_fwd_args args = rope_call(q, q, q_out, none);
  refuse(ctx, &args, TG_BAD_ARGUMENT,
         "rope_fwd: k_out: expected an output beside the input, got none");
  args = rope_call(q, none, q, q_out);
  refuse(ctx, &args, TG_BAD_ARGUMENT, "rope_fwd: k_out: expected none without the input, got one");
  args = rope_call(q, none, q_out, none);
  args.rotary_dim = kRotary - 2;
  refuse(ctx, &args, TG_BAD_SHAPE, "rope_fwd: cos: expected width 42 or 21, got 44");
  args = rope_call(q, none, q_out, none);
  args.cos.shape[1] = args.sin.shape[1] = kSeq - 1;
  args.position_offset = 0;
  refuse(ctx, &args, TG_BAD_SHAPE, "rope_fwd: cos: expected at least 3 rows (seq), got 2");
  args.cos.shape[1] = args.sin.shape[1] = kSeq + 1;
  args.position_offset = 2;
  refuse(ctx, &args, TG_BAD_ARGUMENT, "rope_fwd: position_offset: expected 0 to 1, got 2");
  args = rope_call(q, none, q_out, none);
  args.cos.shape[0] = args.sin.shape[0] = kBatch + 1;
  refuse(ctx, &args, TG_BAD_SHAPE, "rope_fwd: cos: expected first extent 1 or 2, got 3");
  args = rope_call(q, none, q_out, none);
  args.rotary_dim = kRotary - 1;
  refuse(ctx, &args, TG_BAD_ARGUMENT, "rope_fwd: rotary_dim: expected an even number, got 43");
}

int main(void)
{
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_policies),
      cmocka_unit_test(test_views),
      cmocka_unit_test(test_refusals),
  };
  return cmocka_run_group_tests(tests, open_entries, close_entries);
}
