/* Products with quantised weights of every number of rows from 1 to 300, on the CPU, and on a GPU
 * if there is one; and there of some numbers of rows of a long weight: a row has the bits that it
 * has alone, also where rows lie a step apart that kernels cannot take. Of linear_fp8_fp8 on Hopper
 * that holds up to 64 rows; more rows are a class of their own. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "open_context.h"
#include "quantised_calls.h"

/* kWideOut: as many as Hopper's blocks of 128 outputs want from 17 rows on, in clusters; of
 * kWiderOut one block for itself has enough. kLongIn: rings of stages go round in every run. */
enum {
  kRows = 300,
  kIn = 136,
  kLongIn = 4232,
  kOut = 40,
  kWideOut = 5640,
  kWiderOut = 8584,
  kFew = 64,
  kGroup = 32,
  kMostGroups = (kLongIn + 31) / 32
};

typedef enum product_kind {
  kInt8,
  kInt8Dynamic,
  kInt4,
  kFp8,
  kFp8Fp8,
  kFp8Fp8Fast,
  kKinds
} product_kind;

static const char *const kNames[kKinds] = {"linear_int8",    "linear_int8, dynamic",
                                           "linear_int4",    "linear_fp8",
                                           "linear_fp8_fp8", "linear_fp8_fp8, fast"};

/* A product's memory on the context's device. */
typedef struct product {
  product_kind kind;
  int64_t out, in, step; /* step: of x's rows */
  uint16_t *x, *y;       /* bf16 */
  void *weight, *scale;
  int64_t weight_bytes;
} product;

/* ---- weights ---- */

static uint8_t g_bytes[kWiderOut * kLongIn];      /* random */
static float g_scale[kWiderOut * kMostGroups];    /* about 1 / 100 */
static uint8_t g_zero[kWiderOut * kMostGroups];   /* 0 to 15, both ends among them */
static uint8_t g_packed[2 * kWiderOut * kLongIn]; /* of a small weight, more than twice its bytes */

static int64_t groups_of(int64_t in)
{
  return (in + kGroup - 1) / kGroup;
}

static void make_values(int64_t out, int64_t in)
{
  uint64_t s = 5;
  for (int64_t i = 0; i < out * in; i++) {
    g_bytes[i] = (uint8_t)next_bits(&s);
  }
  for (int64_t i = 0; i < out * groups_of(in); i++) {
    g_scale[i] = (float)(50 + next_bits(&s) % 100) / 10000;
    g_zero[i] = (uint8_t)(next_bits(&s) % 16);
  }
}

/* Returns the bytes of g_packed. */
static int64_t pack_int8(int64_t out, int64_t in)
{
  tg_error error;
  const tg_linear_int8_pack_source a = {
      .weight = tg_tensor_2d(g_bytes, TG_I8, out, in),
      .scale = tg_tensor_1d(g_scale, TG_F32, out),
      .packed = tg_tensor_1d(g_packed, TG_U8, tg_linear_int8_packed_bytes(out, in))};
  EXPECT_OK(tg_linear_int8_pack(&a, &error), error);
  return a.packed.shape[0];
}

static int64_t pack_int4(int64_t out, int64_t in)
{
  tg_error error;
  tg_linear_int4_pack_source a = {.weight = tg_tensor_2d(g_bytes, TG_U8, out, in / 2),
                                  .scale = tg_tensor_2d(g_scale, TG_F32, out, groups_of(in)),
                                  .zero_point = tg_tensor_2d(g_zero, TG_U8, out, groups_of(in)),
                                  .in = in,
                                  .group_size = kGroup};
  a.packed = tg_tensor_1d(g_packed, TG_U8, tg_linear_int4_packed_bytes(&a));
  EXPECT_OK(tg_linear_int4_pack(&a, &error), error);
  return a.packed.shape[0];
}

static void clear_nan_codes(int64_t count)
{
  for (int64_t i = 0; i < count; i++) {
    g_bytes[i] = (uint8_t)((g_bytes[i] & 0x7f) == 0x7f ? 0 : g_bytes[i]);
  }
}

static int64_t pack_fp8(int64_t out, int64_t in)
{
  tg_error error;
  const tg_linear_fp8_pack_source a = {
      .weight = tg_tensor_2d(g_bytes, TG_F8_E4M3, out, in),
      .scale = tg_tensor_2d(g_scale, TG_F32, out, 1),
      .packed = tg_tensor_1d(g_packed, TG_U8, tg_linear_fp8_packed_bytes(out, in))};
  EXPECT_OK(tg_linear_fp8_pack(&a, &error), error);
  return a.packed.shape[0];
}

/* ---- calls ---- */

/* A matrix whose rows lie `step` apart. */
static tg_tensor with_step(void *data, int64_t rows, int64_t cols, int64_t step)
{
  tg_tensor t = tg_tensor_2d(data, TG_BF16, rows, cols);
  t.stride[0] = step;
  t.stride[1] = 1;
  return t;
}

/* Rows first .. first + rows - 1 of the product, to the host. */
static void multiply(tg_context *ctx, const product *p, int64_t first, int64_t rows, uint16_t *to)
{
  const size_t bytes = 2 * (size_t)(rows * p->out);
  const tg_tensor x = with_step(p->x + first * p->step, rows, p->in, p->step);
  const tg_tensor y = tg_tensor_2d(p->y, TG_BF16, rows, p->out);
  const tg_tensor packed = tg_tensor_1d(p->weight, TG_U8, p->weight_bytes);
  tg_linear_int8_fwd_args int8 = {.x = x, .weight = packed, .y = y};
  tg_linear_int4_fwd_args int4 = {.x = x, .weight = packed, .y = y};
  tg_linear_fp8_fwd_args fp8 = {.x = x, .weight = packed, .y = y};
  tg_linear_fp8_fp8_fwd_args fp8_fp8 = {.x = x,
                                        .weight =
                                            tg_tensor_2d(p->weight, TG_F8_E4M3, p->out, p->in),
                                        .weight_scale = tg_tensor_1d(p->scale, TG_F32, p->out),
                                        .y = y,
                                        .allow_fast_accum = p->kind == kFp8Fp8Fast};
  switch (p->kind) {
  case kInt8:
  case kInt8Dynamic:
    int8.mode = p->kind == kInt8 ? TG_INT8_WEIGHT_ONLY : TG_INT8_DYNAMIC;
    run_int8(ctx, &int8);
    break;
  case kInt4:
    run_int4(ctx, &int4);
    break;
  case kFp8:
    run_fp8(ctx, &fp8);
    break;
  default:
    run_fp8_fp8(ctx, &fp8_fp8);
    break;
  }
  must_run(ctx, tg_memory_copy(ctx, to, bytes, p->y, bytes, bytes, 1));
}

static void must_agree(tg_context *ctx, const product *p, int64_t rows, const uint16_t *got,
                       const uint16_t *want)
{
  for (int64_t i = 0; i < rows * p->out; i++) {
    if (got[i] != want[i]) {
      fail_msg("%s: %s, row %lld of %lld, column %lld: expected the bits 0x%04x, got "
               "0x%04x",
               tg_context_entry(ctx), kNames[p->kind], (long long)(i / p->out), (long long)rows,
               (long long)(i % p->out), want[i], got[i]);
    }
  }
}

/* About 1 in size, of either sign. */
static uint16_t *make_rows(int64_t count)
{
  uint16_t *x = malloc(2 * (size_t)count);
  uint64_t s = 9;
  for (int64_t i = 0; i < count; i++) {
    const uint64_t z = next_bits(&s);
    x[i] = (uint16_t)(0x3f00u + (z & 0xff) + ((z >> 8 & 1) << 15));
  }
  return x;
}

static product open_product(tg_context *ctx, product_kind kind, int64_t out, int64_t in,
                            int64_t step)
{
  product p = {.kind = kind, .out = out, .in = in, .step = step};
  make_values(out, in);
  if (kind >= kFp8) {
    clear_nan_codes(out * in);
  }
  p.weight_bytes = kind <= kInt8Dynamic ? pack_int8(out, in)
                   : kind == kInt4      ? pack_int4(out, in)
                                        : pack_fp8(out, in);
  p.weight = kind < kFp8Fp8 ? upload(ctx, g_packed, (size_t)p.weight_bytes)
                            : upload(ctx, g_bytes, (size_t)(out * in));
  p.scale = upload(ctx, g_scale, (size_t)out * sizeof g_scale[0]);
  uint16_t *x = make_rows(kRows * step);
  p.x = upload(ctx, x, 2 * (size_t)(kRows * step));
  free(x);
  uint16_t *y = calloc((size_t)(kRows * out), 2);
  p.y = upload(ctx, y, 2 * (size_t)(kRows * out));
  free(y);
  return p;
}

static void close_product(tg_context *ctx, product *p)
{
  tg_memory_free(ctx, p->x);
  tg_memory_free(ctx, p->y);
  tg_memory_free(ctx, p->weight);
  tg_memory_free(ctx, p->scale);
}

static void every_number_of_rows(tg_context *ctx, product_kind kind, int64_t out)
{
  const bool classes = kind >= kFp8Fp8 && strcmp(tg_context_entry(ctx), "sm90") == 0;
  product p = open_product(ctx, kind, out, kIn, kIn);
  uint16_t *alone = malloc(2 * (size_t)(kRows * out)), *many = malloc(2 * (size_t)(kRows * out));
  uint16_t *some = malloc(2 * (size_t)(kRows * out));
  for (int64_t i = 0; i < kRows; i++) {
    multiply(ctx, &p, i, 1, alone + i * out);
  }
  multiply(ctx, &p, 0, kRows, many);
  if (!classes) {
    must_agree(ctx, &p, kRows, many, alone);
  }
  for (int64_t rows = 2; rows < kRows; rows++) {
    multiply(ctx, &p, 0, rows, some);
    must_agree(ctx, &p, rows, some, classes && rows > kFew ? many : alone);
  }
  free(alone);
  free(many);
  free(some);
  close_product(ctx, &p);
}

/* Rows around those where other blocks begin. */
static void some_numbers_of_rows(tg_context *ctx, product_kind kind, int64_t out, int64_t in)
{
  static const int kNumbers[] = {2, 9, 16, 17, 32, 33, 64, 65, 128};
  enum { kMost = 128 };
  const bool classes = kind >= kFp8Fp8 && strcmp(tg_context_entry(ctx), "sm90") == 0;
  product p = open_product(ctx, kind, out, in, in);
  uint16_t *alone = malloc(2 * (size_t)(kMost * out)), *some = malloc(2 * (size_t)(kMost * out));
  for (int64_t i = 0; i < kMost; i++) {
    multiply(ctx, &p, i, 1, alone + i * out);
  }
  for (size_t i = 0; i < sizeof kNumbers / sizeof kNumbers[0]; i++) {
    if (!classes || kNumbers[i] <= kFew) {
      multiply(ctx, &p, 0, kNumbers[i], some);
      must_agree(ctx, &p, kNumbers[i], some, alone);
    }
  }
  free(alone);
  free(some);
  close_product(ctx, &p);
}

/* ---- rows a step apart that is no multiple of a vector ---- */

static void rows_of_an_odd_step(tg_context *ctx, product_kind kind)
{
  enum { kTogether = 3 };
  product p = open_product(ctx, kind, kOut, kIn, kIn + 4);
  uint16_t alone[kOut], together[kTogether * kOut];
  multiply(ctx, &p, 0, 1, alone);
  multiply(ctx, &p, 0, kTogether, together);
  must_agree(ctx, &p, 1, together, alone);
  close_product(ctx, &p);
}

/* Weights in MXFP4 of one expert, forward and (turned) backward. */
static void expert_rows_of_an_odd_step(tg_context *ctx, bool turned)
{
  enum { kSide = 64, kStep = kSide + 4, kTogether = 3, kScales = kSide * (kSide / 32) };
  uint8_t scales[kScales];
  uint16_t got[2][kTogether * kSide];
  tg_error error;
  make_values(kSide, kSide);
  memset(scales, 124, sizeof scales);
  const tg_grouped_linear_mxfp4_pack_source pack = {
      .blocks = {.data = g_bytes, .dtype = TG_U8, .ndim = 4, .shape = {1, kSide, kSide / 32, 16}},
      .scales = {.data = scales, .dtype = TG_U8, .ndim = 3, .shape = {1, kSide, kSide / 32}},
      .packed =
          tg_tensor_1d(g_packed, TG_U8, tg_grouped_linear_mxfp4_packed_bytes(1, kSide, kSide))};
  EXPECT_OK(tg_grouped_linear_mxfp4_pack(&pack, &error), error);
  tg_tensor weight = pack.packed;
  weight.data = upload(ctx, g_packed, (size_t)weight.shape[0]);
  uint16_t *rows = make_rows(kTogether * kStep);
  void *from = upload(ctx, rows, 2 * (size_t)(kTogether * kStep));
  void *to = upload(ctx, memset(got[0], 0, sizeof got[0]), sizeof got[0]);
  free(rows);
  for (int many = 0; many < 2; many++) {
    const int32_t ends[2] = {0, many ? kTogether : 1};
    const tg_tensor offsets = tg_tensor_1d(upload(ctx, ends, sizeof ends), TG_I32, 2);
    const tg_tensor a = with_step(from, ends[1], kSide, kStep);
    const tg_tensor c = tg_tensor_2d(to, TG_BF16, ends[1], kSide);
    tg_grouped_linear_mxfp4_fwd_args fwd = {.x = a, .weight = weight, .offsets = offsets, .y = c};
    tg_grouped_linear_mxfp4_bwd_args bwd = {.dy = a, .weight = weight, .offsets = offsets, .dx = c};
    if (turned) {
      run(ctx, "grouped_linear_mxfp4_bwd", &bwd, &bwd.workspace, &bwd.workspace_bytes);
    } else {
      run(ctx, "grouped_linear_mxfp4_fwd", &fwd, &fwd.workspace, &fwd.workspace_bytes);
    }
    must_run(ctx,
             tg_memory_copy(ctx, got[many], sizeof got[0], to, sizeof got[0], sizeof got[0], 1));
    tg_memory_free(ctx, offsets.data);
  }
  assert_memory_equal(got[0], got[1], 2 * kSide);
  tg_memory_free(ctx, weight.data);
  tg_memory_free(ctx, from);
  tg_memory_free(ctx, to);
}

static void test_rows_on_the_cpu(void **state)
{
  (void)state;
  tg_context *ctx = open_context(TG_BACKEND_CPU);
  for (int kind = 0; kind < kKinds; kind++) {
    every_number_of_rows(ctx, (product_kind)kind, kOut);
    rows_of_an_odd_step(ctx, (product_kind)kind);
  }
  expert_rows_of_an_odd_step(ctx, false);
  expert_rows_of_an_odd_step(ctx, true);
  tg_context_destroy(ctx);
}

static void test_rows_on_a_gpu(void **state)
{
  (void)state;
  if (tg_device_count() == 0) {
    skip();
  }
  tg_context *ctx = open_context(TG_BACKEND_CUDA);
  for (int kind = 0; kind < kKinds; kind++) {
    every_number_of_rows(ctx, (product_kind)kind, kWideOut);
    some_numbers_of_rows(ctx, (product_kind)kind, kWideOut, kLongIn);
    some_numbers_of_rows(ctx, (product_kind)kind, kWiderOut, kLongIn);
    rows_of_an_odd_step(ctx, (product_kind)kind);
  }
  expert_rows_of_an_odd_step(ctx, false);
  expert_rows_of_an_odd_step(ctx, true);
  tg_context_destroy(ctx);
}

int main(void)
{
  const struct CMUnitTest tests[] = {cmocka_unit_test(test_rows_on_the_cpu),
                                     cmocka_unit_test(test_rows_on_a_gpu)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}
