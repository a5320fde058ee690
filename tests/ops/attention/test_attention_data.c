/* Attention's i32 data out of range: every value that the contract names is an error that names the
 * element, before anything is written; and with nothing out of range, what lies outside is not
 * read. */
#include "tegula/tegula.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>

#include <cmocka.h>

#include "expect_op.h"

enum { kElements = 2 * 8 * 2 * 8, kWorkspace = 1 << 20 };

typedef struct fixture {
  tg_context *ctx[2]; /* reference, cpu */
  void *workspace;
  float q[kElements], k[kElements], v[kElements], out[kElements], lse[kElements];
  float dout[kElements], dq[kElements], dk[kElements], dv[kElements];
} fixture;

static int set_up(void **state)
{
  fixture *f = calloc(1, sizeof *f);
  f->workspace = aligned_alloc(256, kWorkspace);
  for (int i = 0; i < 2; i++) {
    const tg_context_options o = {.backend = i ? TG_BACKEND_CPU : TG_BACKEND_REF, .num_threads = 2};
    assert_int_equal(tg_context_create(&o, &f->ctx[i], NULL), TG_OK);
  }
  *state = f;
  return 0;
}

static int tear_down(void **state)
{
  fixture *f = *state;
  tg_context_destroy(f->ctx[0]);
  tg_context_destroy(f->ctx[1]);
  free(f->workspace);
  free(f);
  return 0;
}

/* Two sequences of 4 queries and 6 keys, 2 heads of 8. */
static tg_attention_fwd_args forward_args(fixture *f)
{
  const int64_t lse[3] = {2, 2, 4};
  return (tg_attention_fwd_args){.q = tg_tensor_4d(f->q, TG_F32, 2, 4, 2, 8),
                                 .k = tg_tensor_4d(f->k, TG_F32, 2, 6, 2, 8),
                                 .v = tg_tensor_4d(f->v, TG_F32, 2, 6, 2, 8),
                                 .out = tg_tensor_4d(f->out, TG_F32, 2, 4, 2, 8),
                                 .lse = tg_tensor_view(f->lse, TG_F32, 3, lse),
                                 .scale = 1,
                                 .workspace = f->workspace,
                                 .workspace_bytes = kWorkspace};
}

static tg_attention_bwd_args backward_args(fixture *f, const tg_attention_fwd_args *a)
{
  tg_attention_bwd_args g = {.dout = a->out,
                             .q = a->q,
                             .k = a->k,
                             .v = a->v,
                             .out = a->out,
                             .lse = a->lse,
                             .cu_seqlens_q = a->cu_seqlens_q,
                             .cu_seqlens_k = a->cu_seqlens_k,
                             .key_start = a->key_start,
                             .key_count = a->key_count,
                             .dq = a->q,
                             .dk = a->k,
                             .dv = a->v,
                             .scale = a->scale,
                             .workspace = f->workspace,
                             .workspace_bytes = kWorkspace};
  g.dout.data = f->dout;
  g.dq.data = f->dq;
  g.dk.data = f->dk;
  g.dv.data = f->dv;
  return g;
}

typedef struct bad_data {
  const char *slot;
  int32_t values[3];
  const char *message; /* behind the op's name */
} bad_data;

/* Two sequences of 4 queries or 8 in all, and 6 keys or 12 in all; blocks of 2 keys. */
static const bad_data kBadData[] = {
    {"cu_seqlens_q", {1, 4, 8}, "cu_seqlens_q[0]: expected 0 to 0, got 1"},
    {"cu_seqlens_q", {0, 9, 8}, "cu_seqlens_q[1]: expected 0 to 8, got 9"},
    {"cu_seqlens_q", {0, 5, 4}, "cu_seqlens_q[2]: expected 5 to 8, got 4"},
    {"cu_seqlens_q", {0, 5, 7}, "cu_seqlens_q[2]: expected 8, got 7"},
    {"cu_seqlens_k", {0, -1, 12}, "cu_seqlens_k[1]: expected 0 to 12, got -1"},
    {"cu_seqlens_k", {0, 5, 13}, "cu_seqlens_k[2]: expected 5 to 12, got 13"},
    {"key_start", {0, 7}, "key_start[1]: expected 0 to 6, got 7"},
    {"key_start", {-1, 0}, "key_start[0]: expected 0 to 6, got -1"},
    {"key_count", {0, 7}, "key_count[1]: expected 0 to 6, got 7"},
    {"key_count", {-1, 0}, "key_count[0]: expected 0 to 6, got -1"},
    {"block_table", {0, 1, 6}, "block_table[0, 2]: expected 0 to 5, got 6"},
    {"block_table", {-1, 1, 2}, "block_table[0, 0]: expected 0 to 5, got -1"},
};

static void set_bad_forward(tg_attention_fwd_args *a, const bad_data *bad, int32_t *data)
{
  memcpy(data, bad->values, sizeof bad->values);
  memcpy(data + 3, bad->values, sizeof bad->values);
  if (strcmp(bad->slot, "cu_seqlens_q") == 0) {
    a->cu_seqlens_q = tg_tensor_1d(data, TG_I32, 3);
    a->q.shape[0] = a->out.shape[0] = a->lse.shape[0] = 1;
    a->q.shape[1] = a->out.shape[1] = a->lse.shape[2] = 8;
  } else if (strcmp(bad->slot, "cu_seqlens_k") == 0) {
    a->cu_seqlens_k = tg_tensor_1d(data, TG_I32, 3);
    a->k.shape[0] = a->v.shape[0] = 1;
    a->k.shape[1] = a->v.shape[1] = 12;
  } else if (strcmp(bad->slot, "key_start") == 0) {
    a->key_start = tg_tensor_1d(data, TG_I32, 2);
  } else if (strcmp(bad->slot, "key_count") == 0) {
    a->key_count = tg_tensor_1d(data, TG_I32, 2);
  } else {
    a->block_table = tg_tensor_2d(data, TG_I32, 2, 3);
    a->k.shape[0] = a->v.shape[0] = 6;
    a->k.shape[1] = a->v.shape[1] = 2;
  }
}

static void expect_data_error(fixture *f, tg_context *ctx, const bad_data *bad)
{
  int32_t data[6];
  char message[160];
  tg_attention_fwd_args a = forward_args(f);
  set_bad_forward(&a, bad, data);
  f->out[0] = 77;
  snprintf(message, sizeof message, "attention_fwd: %s", bad->message);
  must_fail(ctx, tg_attention_fwd(ctx, &a), TG_BAD_ARGUMENT, message);
  assert_true(f->out[0] == 77);
  if (strcmp(bad->slot, "block_table") == 0) {
    return;
  }
  const tg_attention_bwd_args g = backward_args(f, &a);
  f->dq[0] = f->dk[0] = f->dv[0] = 77;
  snprintf(message, sizeof message, "attention_bwd: %s", bad->message);
  must_fail(ctx, tg_attention_bwd(ctx, &g), TG_BAD_ARGUMENT, message);
  assert_true(f->dq[0] == 77 && f->dk[0] == 77 && f->dv[0] == 77);
}

static void test_data_errors(void **state)
{
  fixture *f = *state;
  for (size_t i = 0; i < sizeof kBadData / sizeof kBadData[0]; i++) {
    expect_data_error(f, f->ctx[0], &kBadData[i]);
    expect_data_error(f, f->ctx[1], &kBadData[i]);
  }
}

/* A late start leaves fewer keys. */
static void test_count_behind_a_start(void **state)
{
  fixture *f = *state;
  int32_t start[2] = {2, 0}, count[2] = {5, 6};
  tg_attention_fwd_args a = forward_args(f);
  a.key_start = tg_tensor_1d(start, TG_I32, 2);
  a.key_count = tg_tensor_1d(count, TG_I32, 2);
  must_fail(f->ctx[0], tg_attention_fwd(f->ctx[0], &a), TG_BAD_ARGUMENT,
            "attention_fwd: key_count[0]: expected 0 to 4, got 5");
}

/* Table entries that hold no keys may be anything, and rows outside of the keys too. */
static void test_what_is_not_read(void **state)
{
  fixture *f = *state;
  int32_t start[2] = {2, 1}, count[2] = {2, 0}, table[6] = {-7, 4, 99, -1, -1, -1};
  for (int n = 0; n < 2; n++) {
    tg_attention_fwd_args a = forward_args(f);
    a.key_start = tg_tensor_1d(start, TG_I32, 2);
    a.key_count = tg_tensor_1d(count, TG_I32, 2);
    a.block_table = tg_tensor_2d(table, TG_I32, 2, 3);
    a.k.shape[0] = a.v.shape[0] = 6;
    a.k.shape[1] = a.v.shape[1] = 2;
    for (int i = 0; i < kElements; i++) {
      const bool key = i / (2 * 2 * 8) == 4; /* block 4, both rows */
      f->k[i] = key ? 1 : NAN;
      f->v[i] = key ? (float)(i / 16 % 2) : NAN;
      f->q[i] = 1;
      f->out[i] = NAN;
    }
    must_run(f->ctx[n], tg_attention_fwd(f->ctx[n], &a));
    for (int i = 0; i < 2 * 4 * 2 * 8; i++) { /* the mean of 0 and 1; nothing in sequence 1 */
      assert_true(fabsf(f->out[i] - (i < 64 ? 0.5f : 0.0f)) < 1e-6f);
    }
    for (int i = 0; i < 16; i++) {
      assert_true(i < 8 ? fabsf(f->lse[i] - (8 + logf(2))) < 1e-5f : f->lse[i] == -INFINITY);
    }
  }
}

int main(void)
{
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_data_errors),
      cmocka_unit_test(test_count_behind_a_start),
      cmocka_unit_test(test_what_is_not_read),
  };
  return cmocka_run_group_tests(tests, set_up, tear_down);
}
