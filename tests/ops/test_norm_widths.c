/* rms_norm, rms_norm_swiglu and layer_norm have kernels of their own for some widths where rows lie
 * one after the other. They give the bits of the others, which take rows with a gap between them:
 * on ordinary rows, and on infinities, NaN, zeros of both signs, denormal numbers and means far
 * from zero, in rows beside each other and weights alike, with eps of any size. On every entry of
 * the machine. */
#include "core/context_state.h"
#include "core/values/half.h"
#include "cpu_entries.h"
#include "tegula/tegula.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "expect_op.h"

enum { kManyRows = 1030, kMaxCols = 8192, kGap = 8, kKinds = 11, kRandom = 300 };

typedef enum norm { RMS, GATED, LAYER } norm; /* GATED: by x itself */

static const char *const names[] = {"rms_norm", "rms_norm_swiglu", "layer_norm"};

typedef struct call {
  tg_context *ctx;
  int64_t rows, cols;
  uint16_t *x, *weight, *bias; /* of the host, as y and the moments */
  uint16_t *y;
  float *mean, *rstd;
  float eps;
} call;

static void *block(size_t bytes)
{
  void *b = malloc(bytes);
  assert_non_null(b);
  return b;
}

static float uniform(uint64_t *state)
{
  *state = *state * 6364136223846793005u + 1442695040888963407u;
  return (float)((double)(*state >> 11) * 0x1p-52 - 1); /* in [-1, 1) */
}

static void fill_row(uint16_t *row, int64_t cols, int kind, uint64_t *state)
{
  static const uint16_t odd[] = {0x7f80, 0xff80, 0x7fc1, 0x7f7f, 0x0001, 0x8003};
  static const float scale[kKinds] = {1, 0, 1, 0.01f, 1e-38f, 1e-20f, 1e25f, 0, 1, 1, 30},
                     offset[kKinds] = {0, -0.0f, 30, -500, 0, 0, 0, 3.14f, 1, 0, 0};
  for (int64_t j = 0; j < cols; j++) {
    row[j] = tgi_f32_to_bf16(scale[kind] * uniform(state) + offset[kind]);
  }
  if (kind == 1) { /* the product above may be +0 */
    for (int64_t j = 0; j < cols; j++) {
      row[j] = 0x8000;
    }
  }
  if (kind == 9) {
    const uint64_t at = *state >> 33;
    row[at % (uint64_t)cols] = odd[at % (sizeof odd / sizeof odd[0])];
  }
}

static void fill_vector(uint16_t *v, int64_t cols, uint64_t state)
{
  static const uint16_t odd[] = {0, 0x8000, 0x0001, 0x0100, 0x7f00, 0x7f80, 0x7fc1, 0xff7f};
  for (int64_t j = 0; j < cols; j++) {
    v[j] = tgi_f32_to_bf16(1.5f * uniform(&state));
  }
  for (int64_t i = 0; i < (int64_t)(sizeof odd / sizeof odd[0]); i++) {
    v[(5 + 11 * i) % cols] = odd[i];
  }
}

static void *sent(tg_context *ctx, const void *from, size_t bytes)
{
  void *to = NULL;
  must_run(ctx, tg_memory_allocate(ctx, bytes, &to));
  must_run(ctx, tg_memory_copy(ctx, to, bytes, from, bytes, bytes, 1));
  return to;
}

static void fetched(tg_context *ctx, void *to, void *from, size_t bytes)
{
  must_run(ctx, tg_memory_copy(ctx, to, bytes, from, bytes, bytes, 1));
  tg_memory_free(ctx, from);
}

static tg_tensor rows_of(void *data, const call *c, int64_t step)
{
  tg_tensor t = tg_tensor_2d(data, TG_BF16, c->rows, c->cols);
  t.stride[0] = step;
  t.stride[1] = 1;
  return t;
}

/* Rows `gap` elements apart; y, mean and rstd of c are the results. layer_norm has no policy; of
 * rms_norm_swiglu it says whether steps are rounded. */
static void run(const call *c, int64_t gap, norm of, tg_rms_norm_policy policy, float offset)
{
  const int64_t step = c->cols + gap;
  const size_t matrix = (size_t)(c->rows * step) * sizeof *c->x;
  const size_t vector = (size_t)c->cols * sizeof *c->x, moments = (size_t)c->rows * sizeof(float);
  uint16_t *spaced = block(matrix);
  memset(spaced, 0xee, matrix);
  memset(c->mean, 0xee, moments);
  memset(c->rstd, 0xee, moments);
  void *y = sent(c->ctx, spaced, matrix);
  for (int64_t i = 0; i < c->rows; i++) {
    memcpy(spaced + i * step, c->x + i * c->cols, vector);
  }
  void *x = sent(c->ctx, spaced, matrix), *weight = sent(c->ctx, c->weight, vector);
  void *bias = sent(c->ctx, c->bias, vector), *mean = sent(c->ctx, c->mean, moments);
  void *rstd = sent(c->ctx, c->rstd, moments);
  if (of == LAYER) {
    const tg_layer_norm_fwd_args a = {.x = rows_of(x, c, step),
                                      .weight = tg_tensor_1d(weight, TG_BF16, c->cols),
                                      .bias = tg_tensor_1d(bias, TG_BF16, c->cols),
                                      .y = rows_of(y, c, step),
                                      .mean = tg_tensor_1d(mean, TG_F32, c->rows),
                                      .rstd = tg_tensor_1d(rstd, TG_F32, c->rows),
                                      .eps = c->eps};
    must_run(c->ctx, tg_layer_norm_fwd(c->ctx, &a));
  } else if (of == GATED) {
    const tg_rms_norm_swiglu_fwd_args a = {
        .x = rows_of(x, c, step),
        .gate = rows_of(x, c, step),
        .weight = tg_tensor_1d(weight, TG_BF16, c->cols),
        .y = rows_of(y, c, step),
        .rstd = tg_tensor_1d(rstd, TG_F32, c->rows),
        .eps = c->eps,
        .rounding = policy == TG_RMS_NORM_LLAMA ? TG_ROUNDING_HF : TG_ROUNDING_ONCE};
    must_run(c->ctx, tg_rms_norm_swiglu_fwd(c->ctx, &a));
  } else {
    const tg_rms_norm_fwd_args a = {.x = rows_of(x, c, step),
                                    .weight = tg_tensor_1d(weight, TG_BF16, c->cols),
                                    .y = rows_of(y, c, step),
                                    .rstd = tg_tensor_1d(rstd, TG_F32, c->rows),
                                    .eps = c->eps,
                                    .weight_offset = offset,
                                    .policy = policy};
    must_run(c->ctx, tg_rms_norm_fwd(c->ctx, &a));
  }
  fetched(c->ctx, spaced, y, matrix);
  fetched(c->ctx, c->mean, mean, moments);
  fetched(c->ctx, c->rstd, rstd, moments);
  must_run(c->ctx, tg_context_check(c->ctx));
  tg_memory_free(c->ctx, x);
  tg_memory_free(c->ctx, weight);
  tg_memory_free(c->ctx, bias);
  for (int64_t i = 0; i < c->rows; i++) {
    memcpy(c->y + i * c->cols, spaced + i * step, vector);
  }
  free(spaced);
}

static void compare(const call *c, norm of, tg_rms_norm_policy policy, float offset)
{
  call apart = *c;
  const size_t moments = (size_t)c->rows * sizeof(float);
  apart.y = block((size_t)(c->rows * c->cols) * sizeof *c->y);
  apart.mean = block(moments);
  apart.rstd = block(moments);
  run(c, 0, of, policy, offset);
  run(&apart, kGap, of, policy, offset);
  for (int64_t i = 0; i < c->rows * c->cols; i++) {
    if (c->y[i] != apart.y[i]) {
      fail_msg(
          "%s of %s, policy %d, offset %g, eps %a, %lld x %lld: y[%lld, %lld]: expected 0x%04x as "
          "with a gap between rows, got 0x%04x",
          names[of], tg_context_entry(c->ctx), (int)policy, (double)offset, (double)c->eps,
          (long long)c->rows, (long long)c->cols, (long long)(i / c->cols),
          (long long)(i % c->cols), apart.y[i], c->y[i]);
    }
  }
  assert_memory_equal(c->rstd, apart.rstd, moments);
  assert_memory_equal(c->mean, apart.mean, moments);
  free(apart.y);
  free(apart.mean);
  free(apart.rstd);
}

static call make_call(tg_context *ctx, int64_t rows, int64_t cols)
{
  const size_t matrix = (size_t)(rows * cols) * sizeof(uint16_t);
  const size_t vector = (size_t)cols * sizeof(uint16_t), moments = (size_t)rows * sizeof(float);
  const call c = {.ctx = ctx,
                  .rows = rows,
                  .cols = cols,
                  .x = block(matrix),
                  .weight = block(vector),
                  .bias = block(vector),
                  .y = block(matrix),
                  .mean = block(moments),
                  .rstd = block(moments),
                  .eps = 1e-6f};
  fill_vector(c.weight, cols, 1);
  fill_vector(c.bias, cols, 2);
  return c;
}

static void end_call(const call *c)
{
  void *const blocks[] = {c->x, c->weight, c->bias, c->y, c->mean, c->rstd};
  for (size_t i = 0; i < sizeof blocks / sizeof blocks[0]; i++) {
    free(blocks[i]);
  }
}

static void check_width(tg_context *ctx, int64_t rows, int64_t cols)
{
  const call c = make_call(ctx, rows, cols);
  uint64_t state = (uint64_t)(rows * cols);
  for (int64_t i = 0; i < rows; i++) {
    fill_row(c.x + i * cols, cols, (int)(i % kKinds), &state);
  }
  compare(&c, RMS, TG_RMS_NORM_LLAMA, 0);
  compare(&c, RMS, TG_RMS_NORM_LLAMA, 1);
  compare(&c, RMS, TG_RMS_NORM_GPT_OSS, 0);
  compare(&c, GATED, TG_RMS_NORM_LLAMA, 0);
  compare(&c, GATED, TG_RMS_NORM_GPT_OSS, 0);
  compare(&c, LAYER, TG_RMS_NORM_LLAMA, 0);
  end_call(&c);
}

/* Roots of whatever a float can be: eps alone is what the first row has under its root. */
static void check_eps(tg_context *ctx, int64_t cols)
{
  static const float edges[] = {0x1p-149f, 0x1.8p-140f, 0x1p-127f, 0x1p-126f, 0x1p-97f,
                                0x1p-96f,  1,           0x1p100f,  0x1p126f,  0x1.fffffep127f};
  const size_t count = sizeof edges / sizeof edges[0];
  call c = make_call(ctx, 2, cols);
  uint64_t state = 5;
  memset(c.x, 0, (size_t)cols * sizeof *c.x);
  fill_row(c.x + cols, cols, 2, &state);
  for (size_t i = 0; i < count + kRandom; i++) {
    const uint32_t bits =
        (uint32_t)((state = state * 6364136223846793005u + 1) >> 33) % 0x7f7fffff + 1;
    memcpy(&c.eps, &bits, sizeof bits);
    c.eps = i < count ? edges[i] : c.eps;
    compare(&c, RMS, TG_RMS_NORM_LLAMA, 0);
    compare(&c, GATED, TG_RMS_NORM_GPT_OSS, 0);
  }
  end_call(&c);
}

static void check_widths(tg_context *ctx)
{
  static const int64_t cols[] = {128, 512, 768, 1024, 2048, 4096, kMaxCols}, rows[] = {1, 7, 33};
  for (size_t k = 0; k < sizeof cols / sizeof cols[0]; k++) {
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
      check_width(ctx, rows[i], cols[k]);
    }
  }
  check_width(ctx, 133, 128);
  check_width(ctx, kManyRows, 512);
  check_width(ctx, kManyRows, 1024);
  check_eps(ctx, 512);
  check_eps(ctx, 1024);
}

static void test_cpu(void **state)
{
  const cpu_entries *f = *state;
  for (int e = 0; e < f->count; e++) {
    check_widths(f->ctx[e]);
  }
}

/* Not every entry is of this GPU and build. */
static void test_gpu(void **state)
{
  static const char *const entries[] = {"sm90", "sm80", "any"};
  int checked = 0;
  (void)state;
  for (size_t e = 0; e < sizeof entries / sizeof entries[0]; e++) {
    const tg_context_options o = {.backend = TG_BACKEND_CUDA, .entry = entries[e]};
    tg_context *ctx = NULL;
    if (tg_context_create(&o, &ctx, NULL) == TG_OK) {
      check_widths(ctx);
      tg_context_destroy(ctx);
      checked++;
    }
  }
  if (checked == 0) {
    skip();
  }
}

int main(void)
{
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_cpu),
      cmocka_unit_test(test_gpu),
  };
  return cmocka_run_group_tests(tests, open_entries, close_entries);
}
