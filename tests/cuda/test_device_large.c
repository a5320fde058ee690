/* Tensors of more than 2^31 elements on a GPU: the last rows of a call are those of a call of their
 * own, so nowhere does an index end at 32 bits. On every entry of the chain; skipped where the GPU
 * has less than 24 GiB free. */
#include "tegula/tegula.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#define GIB ((int64_t)1 << 30)
#define ELEMENTS (2 * GIB + 3 * 151936) /* of each tensor, and a little more than 2^31 */

enum { kTensors = 4, kLast = 3 /* rows that are compared */ };

/* Memory of the GPU: inputs and results of the large call, results of the small one, a vector for
 * weights, numbers of rows. */
struct memory {
  tg_context *ctx;
  void *large[kTensors], *small[2], *vector, *ids, *loss, *rstd;
};

/* Rows `row` to `row + rows - 1` of the call. */
struct part {
  const struct memory *m;
  int64_t row, rows, cols;
  void *out[2]; /* where its results begin */
};

static tg_tensor in(const struct part *p, int i)
{
  return tg_tensor_2d((uint16_t *)p->m->large[i] + p->row * p->cols, TG_BF16, p->rows, p->cols);
}

static tg_tensor out(const struct part *p, int i)
{
  return tg_tensor_2d(p->out[i], TG_BF16, p->rows, p->cols);
}

static tg_tensor vector(const struct part *p)
{
  return tg_tensor_1d(p->m->vector, TG_BF16, p->cols);
}

static tg_tensor ids(const struct part *p)
{
  return tg_tensor_1d((int32_t *)p->m->ids + p->row, TG_I32, p->rows);
}

static tg_tensor of_rows(const struct part *p, void *data)
{
  return tg_tensor_1d((float *)data + p->row, TG_F32, p->rows);
}

/* ---- ops ---- */

static tg_status run_silu(const struct part *p)
{
  const tg_silu_fwd_args a = {.x = in(p, 0), .y = out(p, 0)};
  return tg_silu_fwd(p->m->ctx, &a);
}

static tg_status run_silu_bwd(const struct part *p)
{
  const tg_silu_bwd_args a = {.dy = in(p, 0), .x = in(p, 1), .dx = out(p, 0)};
  return tg_silu_bwd(p->m->ctx, &a);
}

static tg_status run_swiglu(const struct part *p)
{
  const tg_swiglu_fwd_args a = {
      .gate = in(p, 0), .up = in(p, 1), .y = out(p, 0), .rounding = TG_ROUNDING_HF};
  return tg_swiglu_fwd(p->m->ctx, &a);
}

static tg_status run_swiglu_bwd(const struct part *p)
{
  const tg_swiglu_bwd_args a = {
      .dy = in(p, 0), .gate = in(p, 1), .up = in(p, 0), .dgate = out(p, 0), .dup = out(p, 1)};
  return tg_swiglu_bwd(p->m->ctx, &a);
}

static tg_status run_rms_norm(const struct part *p)
{
  const tg_rms_norm_fwd_args a = {.x = in(p, 0),
                                  .weight = vector(p),
                                  .y = out(p, 0),
                                  .rstd = of_rows(p, p->m->rstd),
                                  .eps = 1e-6f,
                                  .policy = TG_RMS_NORM_LLAMA};
  return tg_rms_norm_fwd(p->m->ctx, &a);
}

static tg_status run_rms_norm_bwd(const struct part *p)
{
  const tg_rms_norm_bwd_args a = {.dy = in(p, 0),
                                  .x = in(p, 1),
                                  .weight = vector(p),
                                  .rstd = of_rows(p, p->m->rstd),
                                  .dx = out(p, 0)};
  return tg_rms_norm_bwd(p->m->ctx, &a);
}

static tg_status run_layer_norm(const struct part *p)
{
  const tg_layer_norm_fwd_args a = {
      .x = in(p, 0), .weight = vector(p), .y = out(p, 0), .eps = 1e-5f};
  return tg_layer_norm_fwd(p->m->ctx, &a);
}

static tg_status run_softmax(const struct part *p)
{
  const tg_softmax_fwd_args a = {.x = in(p, 0), .y = out(p, 0), .scale = 1};
  return tg_softmax_fwd(p->m->ctx, &a);
}

static tg_status run_softmax_bwd(const struct part *p)
{
  const tg_softmax_bwd_args a = {.dy = in(p, 0), .y = in(p, 1), .dx = out(p, 0), .scale = 1};
  return tg_softmax_bwd(p->m->ctx, &a);
}

static tg_status run_cross_entropy(const struct part *p)
{
  const tg_cross_entropy_fwdbwd_args a = {.logits = in(p, 0),
                                          .targets = ids(p),
                                          .loss = of_rows(p, p->m->loss),
                                          .dlogits = out(p, 0),
                                          .reduction = TG_REDUCTION_NONE};
  return tg_cross_entropy_fwdbwd(p->m->ctx, &a);
}

/* Of a table with as many rows as there are ids, whose last ids are its last rows: these, then, are
 * what the small call has to be. */
static tg_status run_embedding(const struct part *p)
{
  if (p->row > 0) {
    const size_t bytes = (size_t)(p->rows * p->cols) * sizeof(uint16_t);
    return tg_memory_copy(p->m->ctx, p->out[0], bytes, in(p, 0).data, bytes, bytes, 1);
  }
  const tg_embedding_fwd_args a = {.ids = ids(p), .table = in(p, 0), .y = out(p, 0)};
  return tg_embedding_fwd(p->m->ctx, &a);
}

static const struct {
  const char *name;
  int64_t cols;
  int results;
  tg_status (*run)(const struct part *p);
} calls[] = {{"silu_fwd", 4096, 1, run_silu},
             {"silu_bwd", 4096, 1, run_silu_bwd},
             {"swiglu_fwd", 14336, 1, run_swiglu},
             {"swiglu_bwd", 3072, 2, run_swiglu_bwd},
             {"rms_norm_fwd", 128, 1, run_rms_norm},
             {"rms_norm_fwd", 4096, 1, run_rms_norm},
             {"rms_norm_bwd", 4096, 1, run_rms_norm_bwd},
             {"layer_norm_fwd", 1024, 1, run_layer_norm},
             {"softmax_fwd", 4096, 1, run_softmax},
             {"softmax_fwd", 131072, 1, run_softmax},
             {"softmax_bwd", 32768, 1, run_softmax_bwd},
             {"cross_entropy_fwdbwd", 50257, 1, run_cross_entropy},
             {"cross_entropy_fwdbwd", 151936, 1, run_cross_entropy},
             {"embedding_fwd", 4096, 1, run_embedding}};

/* ---- the test ---- */

static void run_call(struct memory *m, size_t k)
{
  const int64_t cols = calls[k].cols, rows = ELEMENTS / cols;
  const struct part all = {.m = m, .rows = rows, .cols = cols, .out = {m->large[2], m->large[3]}};
  const struct part last = {
      .m = m, .row = rows - kLast, .rows = kLast, .cols = cols, .out = {m->small[0], m->small[1]}};
  const size_t bytes = (size_t)(kLast * cols) * sizeof(uint16_t);
  char *const found = malloc(bytes), *const wanted = malloc(bytes);
  assert_true(rows * cols > INT32_MAX);
  for (int i = 0; i < calls[k].results; i++) { /* neither has what the other wrote */
    uint16_t *end = (uint16_t *)m->large[2 + i] + (rows - kLast) * cols;
    assert_int_equal(tg_memory_zero(m->ctx, end, bytes), TG_OK);
    memset(found, 0xa5, bytes);
    assert_int_equal(tg_memory_copy(m->ctx, m->small[i], bytes, found, bytes, bytes, 1), TG_OK);
  }
  for (int turn = 0; turn < 2; turn++) {
    if (calls[k].run(turn == 0 ? &all : &last) != TG_OK) {
      fail_msg("%s %lld: %s", calls[k].name, (long long)cols, tg_context_message(m->ctx));
    }
  }
  for (int i = 0; i < calls[k].results; i++) {
    const uint16_t *end = (uint16_t *)m->large[2 + i] + (rows - kLast) * cols;
    assert_int_equal(tg_memory_copy(m->ctx, found, bytes, end, bytes, bytes, 1), TG_OK);
    assert_int_equal(tg_memory_copy(m->ctx, wanted, bytes, m->small[i], bytes, bytes, 1), TG_OK);
    if (memcmp(found, wanted, bytes) != 0) {
      fail_msg("%s %lld: expected the bits of a call of the last %d rows alone, got others",
               calls[k].name, (long long)cols, kLast);
    }
  }
  free(found);
  free(wanted);
  assert_int_equal(tg_context_check(m->ctx), TG_OK);
}

/* bf16 values of 2^-7 to 2^-3. A block of a length that divides no power of two, again and again:
 * what lies 2^31 or 2^32 elements or bytes before is something else. */
static void fill(const struct memory *m, void *to, unsigned seed)
{
  const size_t block = 60000011 * sizeof(uint16_t), all = ELEMENTS * sizeof(uint16_t);
  uint16_t *values = malloc(block);
  uint32_t state = seed;
  for (size_t i = 0; i < block / sizeof *values; i++) {
    state = state * 1664525 + 1013904223;
    values[i] = (uint16_t)(0x3c00 + (state >> 16 & 0x81ff)); /* 2^-7 .. 2^-3, both signs */
  }
  for (size_t at = 0; at < all; at += block) {
    const size_t part = all - at < block ? all - at : block;
    assert_int_equal(tg_memory_copy(m->ctx, (char *)to + at, part, values, part, part, 1), TG_OK);
  }
  free(values);
}

static void *memory_of(const struct memory *m, int64_t bytes)
{
  void *found = NULL;
  assert_int_equal(tg_memory_allocate(m->ctx, (size_t)bytes, &found), TG_OK);
  return found;
}

static void make_memory(struct memory *m)
{
  const int64_t rows = ELEMENTS / 128; /* of the narrowest call */
  int32_t *numbers = malloc((size_t)rows * sizeof *numbers);
  for (int i = 0; i < kTensors; i++) {
    m->large[i] = memory_of(m, ELEMENTS * 2);
  }
  fill(m, m->large[0], 1);
  fill(m, m->large[1], 2);
  for (int i = 0; i < 2; i++) {
    m->small[i] = memory_of(m, (int64_t)kLast * 151936 * 2);
  }
  m->vector = (uint16_t *)m->large[1] + 12345 * 8; /* as good as any, and aligned */
  m->loss = memory_of(m, rows * 4);
  m->rstd = memory_of(m, rows * 4);
  m->ids = memory_of(m, rows * 4);
  for (int64_t i = 0; i < rows; i++) { /* classes, and rows of the table; 1 where it is no class */
    numbers[i] = i < 50257 ? (int32_t)i : 1;
  }
  for (int64_t i = ELEMENTS / 4096 - kLast; i < ELEMENTS / 4096; i++) {
    numbers[i] = (int32_t)i;
  }
  assert_int_equal(tg_memory_copy(m->ctx, m->ids, (size_t)rows * 4, numbers, (size_t)rows * 4,
                                  (size_t)rows * 4, 1),
                   TG_OK);
  free(numbers);
}

static void free_memory(struct memory *m)
{
  void *const blocks[] = {m->large[0], m->large[1], m->large[2], m->large[3], m->small[0],
                          m->small[1], m->loss,     m->rstd,     m->ids};
  for (size_t i = 0; i < sizeof blocks / sizeof blocks[0]; i++) {
    tg_memory_free(m->ctx, blocks[i]);
  }
}

static void test_last_rows(void **state)
{
  (void)state;
  static const char *const entries[] = {"sm90", "sm80", "any"};
  tg_device_info info;
  if (tg_device_count() == 0 || tg_device_get_info(0, &info, NULL) != TG_OK || !info.supported ||
      info.free_bytes < 24 * GIB) {
    skip();
  }
  int ran = 0;
  for (size_t e = 0; e < sizeof entries / sizeof entries[0]; e++) {
    const tg_context_options o = {.backend = TG_BACKEND_CUDA, .entry = entries[e]};
    struct memory m = {0};
    if (tg_context_create(&o, &m.ctx, NULL) != TG_OK) {
      continue; /* not an entry of this GPU and build */
    }
    make_memory(&m);
    for (size_t k = 0; k < sizeof calls / sizeof calls[0]; k++) {
      run_call(&m, k);
      ran++;
    }
    free_memory(&m);
    tg_context_destroy(m.ctx);
  }
  assert_true(ran > 0);
}

int main(void)
{
  const struct CMUnitTest tests[] = {cmocka_unit_test(test_last_rows)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}
