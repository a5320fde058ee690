/* Weights of experts in MXFP4: packed and back to the bit, what packing and the op refuse, and the
 * backward's products to the bit as those of the widened weights. */
#include "core/values/packed_weight.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>

#include <cmocka.h>

#include "quantised_calls.h"

enum {
  kExperts = 3,
  kOut = 37,
  kIn = 96,
  kGroups = kIn / 32,
  kScales = kExperts * kOut * kGroups,
  kRows = 9,
  kVersionAt = offsetof(tgi_packed_header, version)
};

typedef struct stored {
  uint8_t blocks[16 * kScales], scales[kScales];
  uint8_t packed[64 + kExperts * 2 * kGroups * 544];
} stored;

static tg_tensor blocks_at(uint8_t *data)
{
  return (tg_tensor){
      .data = data, .dtype = TG_U8, .ndim = 4, .shape = {kExperts, kOut, kGroups, 16}};
}

static tg_tensor scales_at(uint8_t *data)
{
  return (tg_tensor){.data = data, .dtype = TG_U8, .ndim = 3, .shape = {kExperts, kOut, kGroups}};
}

/* All codes; scales of 104 to 135. */
static tg_grouped_linear_mxfp4_pack_source fill(stored *s)
{
  uint64_t state = 11;
  for (int i = 0; i < 16 * kScales; i++) {
    s->blocks[i] = (uint8_t)next_bits(&state);
  }
  for (int i = 0; i < kScales; i++) {
    s->scales[i] = (uint8_t)(104 + next_bits(&state) % 32);
  }
  assert_int_equal(tg_grouped_linear_mxfp4_packed_bytes(kExperts, kOut, kIn), sizeof s->packed);
  return (tg_grouped_linear_mxfp4_pack_source){
      .blocks = blocks_at(s->blocks),
      .scales = scales_at(s->scales),
      .packed = tg_tensor_1d(s->packed, TG_U8, sizeof s->packed)};
}

static void test_round_trip(void **state)
{
  static stored s, back;
  tg_error error;
  (void)state;
  tg_grouped_linear_mxfp4_pack_source a = fill(&s);
  EXPECT_OK(tg_grouped_linear_mxfp4_pack(&a, &error), error);
  a.blocks.data = back.blocks;
  a.scales.data = back.scales;
  EXPECT_OK(tg_grouped_linear_mxfp4_unpack(&a, &error), error);
  assert_memory_equal(back.blocks, s.blocks, sizeof s.blocks);
  assert_memory_equal(back.scales, s.scales, sizeof s.scales);
}

static void test_packing_errors(void **state)
{
  static stored s;
  tg_error error;
  (void)state;
  const tg_grouped_linear_mxfp4_pack_source good = fill(&s);
  tg_grouped_linear_mxfp4_pack_source a = good;
  a.scales.shape[2]--;
  EXPECT_ERROR(tg_grouped_linear_mxfp4_pack(&a, &error), TG_BAD_SHAPE,
               "grouped_linear_mxfp4_pack: scales: expected u8 [3, 37, 3], got u8 [3, 37, 2]",
               error);
  a = good;
  a.packed.shape[0]--;
  EXPECT_ERROR(tg_grouped_linear_mxfp4_pack(&a, &error), TG_BAD_SHAPE, "packed: expected u8 [",
               error);
  a = good;
  a.blocks.dtype = TG_I8;
  EXPECT_ERROR(tg_grouped_linear_mxfp4_pack(&a, &error), TG_BAD_DTYPE, "blocks: expected u8",
               error);
  a = good;
  s.scales[kScales - 1] = 253;
  EXPECT_ERROR(tg_grouped_linear_mxfp4_pack(&a, &error), TG_BAD_ARGUMENT,
               "grouped_linear_mxfp4_pack: scales: expected at most 252, got 253", error);
  s.scales[kScales - 1] = 252;
  EXPECT_OK(tg_grouped_linear_mxfp4_pack(&a, &error), error);
  a = good; /* no expert of more columns than packed weights can have */
  a.blocks.shape[0] = a.scales.shape[0] = 0;
  a.blocks.shape[1] = a.scales.shape[1] = 1;
  a.blocks.shape[2] = a.scales.shape[2] = INT64_C(1) << 55;
  a.packed = tg_tensor_1d(NULL, TG_U8, 0);
  EXPECT_ERROR(tg_grouped_linear_mxfp4_pack(&a, &error), TG_BAD_SHAPE,
               "packed: expected extents of less than 2^63 packed bytes", error);
  EXPECT_ERROR(tg_grouped_linear_mxfp4_unpack(&a, &error), TG_BAD_SHAPE,
               "packed: expected extents of less than 2^63 packed bytes", error);
  assert_int_equal(tg_grouped_linear_mxfp4_pack(NULL, NULL), TG_BAD_ARGUMENT);
  assert_int_equal(tg_grouped_linear_mxfp4_packed_bytes(-1, 3, 32), 0);
  assert_int_equal(tg_grouped_linear_mxfp4_packed_bytes(1, -3, 32), 0);
  assert_int_equal(tg_grouped_linear_mxfp4_packed_bytes(1, 3, -32), 0);
  assert_int_equal(tg_grouped_linear_mxfp4_packed_bytes(1 << 20, INT64_MAX >> 20, 32), 0);
  assert_int_equal(tg_grouped_linear_mxfp4_packed_bytes(1, 3, INT64_MAX), 0);
}

static void test_unpacking_errors(void **state)
{
  static stored s, back;
  tg_error error;
  (void)state;
  tg_grouped_linear_mxfp4_pack_source a = fill(&s);
  EXPECT_OK(tg_grouped_linear_mxfp4_pack(&a, &error), error);
  a.blocks.data = back.blocks;
  a.scales.data = back.scales;
  s.packed[kVersionAt] = 7;
  EXPECT_ERROR(tg_grouped_linear_mxfp4_unpack(&a, &error), TG_BAD_ARGUMENT,
               "grouped_linear_mxfp4_unpack: packed: expected version 1 of the layout, got 7",
               error);
  s.packed[kVersionAt] = 1;
  s.packed[offsetof(tgi_packed_header, out)]++;
  EXPECT_ERROR(tg_grouped_linear_mxfp4_unpack(&a, &error), TG_BAD_SHAPE,
               "packed: expected a packed [3, 37, 96], got [3, 38, 96]", error);
  s.packed[0] = 'X';
  EXPECT_ERROR(tg_grouped_linear_mxfp4_unpack(&a, &error), TG_BAD_ARGUMENT,
               "packed: expected weights packed for this op, got others", error);
}

/* ---- the op ---- */

typedef struct rows {
  float x[kRows * kIn], y[kRows * kOut];
  int32_t offsets[kExperts + 1];
} rows;

static tg_grouped_linear_mxfp4_fwd_args forward_of(rows *r, stored *s)
{
  return (tg_grouped_linear_mxfp4_fwd_args){
      .x = tg_tensor_2d(r->x, TG_F32, kRows, kIn),
      .weight = tg_tensor_1d(s->packed, TG_U8, sizeof s->packed),
      .offsets = tg_tensor_1d(r->offsets, TG_I32, kExperts + 1),
      .y = tg_tensor_2d(r->y, TG_F32, kRows, kOut)};
}

/* The status of a call whose workspace has the size of a right one. */
static tg_status status_of(tg_context *ctx, tg_grouped_linear_mxfp4_fwd_args a)
{
  a.workspace_bytes = 1 << 20;
  a.workspace = aligned_alloc(256, a.workspace_bytes);
  const tg_status status = tg_grouped_linear_mxfp4_fwd(ctx, &a);
  free(a.workspace);
  return status;
}

static void test_foreign_weights(void **state)
{
  const every_entry *e = *state;
  tg_context *ctx = e->ctx[0];
  static stored s;
  static rows r = {.offsets = {0, 4, 4, 9}};
  tg_error error;
  const tg_grouped_linear_mxfp4_pack_source source = fill(&s);
  EXPECT_OK(tg_grouped_linear_mxfp4_pack(&source, &error), error);
  tg_grouped_linear_mxfp4_fwd_args a = forward_of(&r, &s);
  assert_int_equal(status_of(ctx, a), TG_OK);
  s.packed[kVersionAt] = 2;
  must_fail(ctx, status_of(ctx, a), TG_BAD_ARGUMENT,
            "grouped_linear_mxfp4_fwd: weight: expected version 1 of the layout, got 2");
  s.packed[kVersionAt] = 1;
  s.packed[offsetof(tgi_packed_header, experts)] = 4;
  must_fail(ctx, status_of(ctx, a), TG_BAD_SHAPE,
            "grouped_linear_mxfp4_fwd: weight: expected 3 packed experts, got 4");
  s.packed[offsetof(tgi_packed_header, experts)] = 3;
  for (int byte = 0; byte < 24; byte++) { /* magic, then out and in */
    s.packed[byte] ^= 0x41;
    assert_int_equal(status_of(ctx, a), byte < 8 ? TG_BAD_ARGUMENT : TG_BAD_SHAPE);
    s.packed[byte] ^= 0x41;
  }
  a.weight.shape[0]--;
  must_fail(ctx, status_of(ctx, a), TG_BAD_SHAPE,
            "grouped_linear_mxfp4_fwd: weight: expected the 9856 bytes of a packed [3, 37, 96], "
            "got 9855");
  a = forward_of(&r, &s);
  a.x.shape[1] = 95;
  a.x.stride[0] = kIn;
  a.x.stride[1] = 1;
  must_fail(ctx, status_of(ctx, a), TG_BAD_SHAPE,
            "grouped_linear_mxfp4_fwd: x: expected a multiple of 32 inputs, got 95");
  a = forward_of(&r, &s);
  a.offsets.shape[0] = 1;
  must_fail(ctx, status_of(ctx, a), TG_BAD_SHAPE,
            "grouped_linear_mxfp4_fwd: offsets: expected 1 to 2^31 - 2 experts, got 0");
  a = forward_of(&r, &s);
  r.offsets[2] = 3;
  must_fail(ctx, status_of(ctx, a), TG_BAD_ARGUMENT,
            "grouped_linear_mxfp4_fwd: offsets[2]: expected 4 to 9, got 3");
  r.offsets[2] = 4;
  r.offsets[3] = 10;
  must_fail(ctx, status_of(ctx, a), TG_BAD_ARGUMENT,
            "grouped_linear_mxfp4_fwd: offsets[3]: expected 4 to 9, got 10");
  int32_t slot[kRows] = {0, 8, 9};
  r.offsets[3] = 9;
  a.slot = tg_tensor_1d(slot, TG_I32, kRows);
  a.slots_per_row = 1;
  must_fail(ctx, status_of(ctx, a), TG_BAD_ARGUMENT,
            "grouped_linear_mxfp4_fwd: slot[2]: expected 0 to 8, got 9");
}

/* dx has the bits that grouped_linear gives with the values of the weights. */
static void test_dx_of_widened_weights(void **state)
{
  const every_entry *e = *state;
  static stored s;
  static float dy[kRows * kOut], x[kRows * kIn], weight[kScales * 32], dx[2][kRows * kIn];
  static int32_t offsets[kExperts + 1] = {0, 4, 4, 8};
  uint64_t seed = 3;
  tg_error error;
  const tg_grouped_linear_mxfp4_pack_source source = fill(&s);
  EXPECT_OK(tg_grouped_linear_mxfp4_pack(&source, &error), error);
  for (int i = 0; i < kRows * kOut; i++) {
    dy[i] = (float)next_normal(&seed);
  }
  for (int k = 0; k < e->count; k++) {
    tg_context *ctx = e->ctx[k];
    const tg_dequantize_mxfp4_fwd_args widen = {
        .blocks =
            tg_tensor_view(s.blocks, TG_U8, 3, (const int64_t[]){kExperts * kOut, kGroups, 16}),
        .scales = tg_tensor_2d(s.scales, TG_U8, kExperts * kOut, kGroups),
        .x = tg_tensor_2d(weight, TG_F32, kExperts * kOut, kIn)};
    must_run(ctx, tg_dequantize_mxfp4_fwd(ctx, &widen));
    tg_grouped_linear_bwd_args plain = {
        .dy = tg_tensor_2d(dy, TG_F32, kRows, kOut),
        .x = tg_tensor_2d(x, TG_F32, kRows, kIn),
        .weight = {.data = weight, .dtype = TG_F32, .ndim = 3, .shape = {kExperts, kOut, kIn}},
        .offsets = tg_tensor_1d(offsets, TG_I32, kExperts + 1),
        .dx = tg_tensor_2d(dx[0], TG_F32, kRows, kIn)};
    tg_grouped_linear_mxfp4_bwd_args packed = {.dy = plain.dy,
                                               .weight = source.packed,
                                               .offsets = plain.offsets,
                                               .dx = tg_tensor_2d(dx[1], TG_F32, kRows, kIn)};
    run(ctx, "grouped_linear_bwd", &plain, &plain.workspace, &plain.workspace_bytes);
    run(ctx, "grouped_linear_mxfp4_bwd", &packed, &packed.workspace, &packed.workspace_bytes);
    assert_true(dx[0][5] != 0 && dx[0][kRows * kIn - 1] == 0);
    assert_memory_equal(dx[0], dx[1], sizeof dx[0]);
  }
}

int main(void)
{
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_round_trip),
      cmocka_unit_test(test_packing_errors),
      cmocka_unit_test(test_unpacking_errors),
      cmocka_unit_test(test_foreign_weights),
      cmocka_unit_test(test_dx_of_widened_weights),
  };
  return cmocka_run_group_tests(tests, setup, teardown);
}
