/* rope and qk_norm_rope in bf16 against what the classes of transformers give, on every entry. */
#include "golden/rope/qk_norm_rope_values.h"
#include "golden/rope/rope_values.h"

#include "core/values/half.h"
#include "cpu_entries.h"
#include "tegula/tegula.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>

#include <cmocka.h>

enum {
  kQ = kGoldenBatch * kGoldenSeq * kGoldenHeads * kGoldenDim,
  kK = kGoldenBatch * kGoldenSeq * kGoldenKvHeads * kGoldenDim,
  kTable = kGoldenBatch * kGoldenSeq * kGoldenDim,
};

static tg_tensor heads_view(void *data, int64_t heads)
{
  return tg_tensor_4d(data, TG_BF16, kGoldenBatch, kGoldenSeq, heads, kGoldenDim);
}

static tg_tensor table_view(void *data, int64_t batch, int64_t width)
{
  const int64_t shape[3] = {batch, kGoldenSeq, width};
  return tg_tensor_view(data, TG_BF16, 3, shape);
}

static void same(const tg_context *ctx, const char *what, const uint16_t *got, const uint16_t *want,
                 int n)
{
  for (int i = 0; i < n; i++) {
    if (got[i] != want[i]) {
      fail_msg("%s, %s[%d]: expected 0x%04x, got 0x%04x", tg_context_entry(ctx), what, i, want[i],
               got[i]);
    }
  }
}

/* Columns of the golden half tables for a class: all twice, all once, or as many as it rotates. */
static void copy_table(uint16_t *table, const uint16_t *half, int64_t columns, int64_t repeats)
{
  for (int row = 0; row < kGoldenBatch * kGoldenSeq; row++) {
    for (int64_t j = 0; j < columns * repeats; j++) {
      table[row * columns * repeats + j] = half[row * kGoldenDim / 2 + j % columns];
    }
  }
}

typedef struct class_case {
  const char *name;
  int64_t rotary_dim, columns, repeats;
  tg_rope_pairing pairing;
  const uint16_t *q, *k;
} class_case;

static void test_apply_rotary_pos_emb(void **state)
{
  static const class_case cases[] = {
      {"Qwen3", 0, kGoldenDim / 2, 2, TG_ROPE_HALVES, kGoldenHalvesQ, kGoldenHalvesK},
      {"GPT-OSS", 0, kGoldenDim / 2, 1, TG_ROPE_HALVES, kGoldenHalvesQ, kGoldenHalvesK},
      {"GPT-J", kGoldenRotary, kGoldenRotary / 2, 1, TG_ROPE_INTERLEAVED, kGoldenGptJQ,
       kGoldenGptJK},
  };
  const cpu_entries *f = *state;
  for (int e = 0; e < f->count; e++) {
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
      const class_case *c = &cases[i];
      uint16_t q[kQ], k[kK], q_out[kQ], k_out[kK], cos[kTable], sin[kTable];
      memcpy(q, kGoldenQ, sizeof q);
      memcpy(k, kGoldenK, sizeof k);
      copy_table(cos, kGoldenCos, c->columns, c->repeats);
      copy_table(sin, kGoldenSin, c->columns, c->repeats);
      const int64_t width = c->columns * c->repeats;
      const tg_rope_fwd_args args = {.q = heads_view(q, kGoldenHeads),
                                     .k = heads_view(k, kGoldenKvHeads),
                                     .cos = table_view(cos, kGoldenBatch, width),
                                     .sin = table_view(sin, kGoldenBatch, width),
                                     .q_out = heads_view(q_out, kGoldenHeads),
                                     .k_out = heads_view(k_out, kGoldenKvHeads),
                                     .rotary_dim = c->rotary_dim,
                                     .pairing = c->pairing,
                                     .rounding = TG_ROUNDING_HF};
      assert_int_equal(tg_rope_fwd(f->ctx[e], &args), TG_OK);
      same(f->ctx[e], c->name, q_out, c->q, kQ);
      same(f->ctx[e], c->name, k_out, c->k, kK);
      same(f->ctx[e], "q, an input", q, kGoldenQ, kQ);
      same(f->ctx[e], "k, an input", k, kGoldenK, kK);
    }
  }
}

/* As in test_rounding: a head's rstd may differ from PyTorch's in the last place, for the sum has
 * another order. Where it is the same, all bits are. Where it is not, an output changes only if a
 * rounding was within 2^-23 of a tie, about one in 2^14 for each of the five: none is expected in
 * these 1152 outputs; one pair is allowed, by one place. */
static int count_moved(const tg_context *ctx, const char *what, const uint16_t *got,
                       const uint16_t *want, const float *rstd, const uint32_t *want_rstd, int n)
{
  int moved = 0;
  for (int i = 0; i < n; i++) {
    const int head = i / kGoldenDim, places = abs((int)got[i] - (int)want[i]);
    const float exact = tgi_bits_float(want_rstd[head]);
    if (places > (tgi_float_bits(rstd[head]) == want_rstd[head] ? 0 : 1)) {
      fail_msg("%s, %s[%d]: expected 0x%04x, got 0x%04x (rstd %a, transformers %a)",
               tg_context_entry(ctx), what, i, want[i], got[i], (double)rstd[head], (double)exact);
    }
    if (fabsf(rstd[head] - exact) > 0x1p-22f * exact) {
      fail_msg("%s, %s: rstd[%d]: expected %a, got %a", tg_context_entry(ctx), what, head,
               (double)exact, (double)rstd[head]);
    }
    moved += places;
  }
  return moved;
}

static void test_qwen3_attention(void **state)
{
  const cpu_entries *f = *state;
  for (int e = 0; e < f->count; e++) {
    uint16_t q[kQ], k[kK], q_weight[kGoldenDim], k_weight[kGoldenDim];
    uint16_t cos[kGoldenSeq * kGoldenDim], sin[kGoldenSeq * kGoldenDim];
    float q_rstd[kQ / kGoldenDim], k_rstd[kK / kGoldenDim];
    const int64_t q_heads[3] = {kGoldenBatch, kGoldenSeq, kGoldenHeads};
    const int64_t k_heads[3] = {kGoldenBatch, kGoldenSeq, kGoldenKvHeads};
    memcpy(q, kGoldenNormQ, sizeof q);
    memcpy(k, kGoldenNormK, sizeof k);
    memcpy(q_weight, kGoldenNormQWeight, sizeof q_weight);
    memcpy(k_weight, kGoldenNormKWeight, sizeof k_weight);
    memcpy(cos, kGoldenNormCos, sizeof cos);
    memcpy(sin, kGoldenNormSin, sizeof sin);
    const tg_qk_norm_rope_fwd_args args = {
        .q = heads_view(q, kGoldenHeads),
        .k = heads_view(k, kGoldenKvHeads),
        .q_weight = tg_tensor_1d(q_weight, TG_BF16, kGoldenDim),
        .k_weight = tg_tensor_1d(k_weight, TG_BF16, kGoldenDim),
        .cos = table_view(cos, 1, kGoldenDim),
        .sin = table_view(sin, 1, kGoldenDim),
        .q_out = heads_view(q, kGoldenHeads),
        .k_out = heads_view(k, kGoldenKvHeads),
        .q_rstd = tg_tensor_view(q_rstd, TG_F32, 3, q_heads),
        .k_rstd = tg_tensor_view(k_rstd, TG_F32, 3, k_heads),
        .eps = 1e-6f,
        .pairing = TG_ROPE_HALVES,
        .rounding = TG_ROUNDING_HF,
    };
    assert_int_equal(tg_qk_norm_rope_fwd(f->ctx[e], &args), TG_OK);
    const int moved =
        count_moved(f->ctx[e], "query", q, kGoldenNormQueryOut, q_rstd, kGoldenNormQRstd, kQ) +
        count_moved(f->ctx[e], "key", k, kGoldenNormKeyOut, k_rstd, kGoldenNormKRstd, kK);
    if (moved > 2) {
      fail_msg("%s: %d outputs differ", tg_context_entry(f->ctx[e]), moved);
    }
  }
}

int main(void)
{
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_apply_rotary_pos_emb),
      cmocka_unit_test(test_qwen3_attention),
  };
  return cmocka_run_group_tests(tests, open_entries, close_entries);
}
