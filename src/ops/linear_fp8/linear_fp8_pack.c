/* Packing fp8 weights, once per model: plain loops. */
#include "ops/linear_fp8/linear_fp8_packed.h"
#include "tegula/linear_fp8.h"

#include <math.h>

#define SLOT(...) TGI_PACK_SLOT(tg_linear_fp8_pack_source, __VA_ARGS__)

static const tg_slot_info slots[] = {
    SLOT(weight, TG_ROLE_IN, TG_LAYOUT_ROWS, 2, TG_DTYPE_BIT(TG_F8_E4M3), false),
    SLOT(scale, TG_ROLE_IN, TG_LAYOUT_DENSE, 2, TGI_BIT_F32, false),
    SLOT(packed, TG_ROLE_OUT, TG_LAYOUT_DENSE, 1, TG_DTYPE_BIT(TG_U8), false),
};

static const tg_op_info info = {
    .name = "linear_fp8_pack", .num_slots = sizeof slots / sizeof slots[0], .slots = slots};

int64_t tg_linear_fp8_packed_bytes(int64_t out, int64_t in)
{
  if (out < 0 || in < 0 || in > INT64_MAX / TGI_PANEL_ROWS / 2) {
    return 0;
  }
  return tgi_packed_size(out, tgi_fp8_panel_bytes(in));
}

static bool has_one_scale(const tg_linear_fp8_pack_source *a)
{
  return a->scale.shape[0] == 1 && a->scale.shape[1] == 1;
}

/* The scale of block b of row o. */
static float scale_of(const tg_linear_fp8_pack_source *a, int64_t o, int64_t b)
{
  const int64_t per_row = a->scale.shape[1];
  const int64_t at = has_one_scale(a) ? 0 : per_row == 1 ? o : o * per_row + b;
  return ((const float *)a->scale.data)[at];
}

static bool is_nan_code(uint8_t code)
{
  return (code & 0x7f) == 0x7f;
}

static void check(tgi_call *call, const tg_linear_fp8_pack_source *a)
{
  if (call->status == TG_OK) {
    const int64_t out = a->weight.shape[0], in = a->weight.shape[1];
    const bool one_a_row = a->scale.shape[0] == out && a->scale.shape[1] == 1;
    if (!has_one_scale(a) && !one_a_row) {
      TGI_WANT_SHAPE(call, a, scale, out, tgi_divide_up(in, TGI_FP8_BLOCK));
    }
    tgi_want_packed_bytes(call, &a->packed, tg_linear_fp8_packed_bytes(out, in));
  }
}

/* A panel's part of one block of columns. */
static void pack_block(const tg_linear_fp8_pack_source *a, int64_t first, int64_t b, uint8_t *to)
{
  const int64_t out = a->weight.shape[0], in = a->weight.shape[1], k0 = b * TGI_FP8_BLOCK;
  const int64_t columns = in - k0 < TGI_FP8_BLOCK ? in - k0 : TGI_FP8_BLOCK;
  memset(to, 0, (size_t)(TGI_FP8_HEAD_BYTES + columns * TGI_PANEL_ROWS));
  for (int64_t o = first; o < first + TGI_PANEL_ROWS && o < out; o++) {
    const uint8_t *row = tgi_row(&a->weight, o);
    float scale = scale_of(a, o, b);
    for (int64_t k = 0; k < columns; k++) {
      to[tgi_fp8_value_at(o, k)] = row[k0 + k];
      scale = is_nan_code(row[k0 + k]) ? NAN : scale;
    }
    memcpy(to + (o - first) * 4, &scale, sizeof scale);
  }
}

tg_status tg_linear_fp8_pack(const tg_linear_fp8_pack_source *args, tg_error *error)
{
  tgi_pack_call p;
  tgi_pack_begin(&p, &info, args);
  check(&p.call, args);
  if (p.call.status == TG_OK) {
    const int64_t out = args->weight.shape[0], in = args->weight.shape[1];
    const tgi_packed_header header = {
        .magic = TGI_FP8_MAGIC, .version = TGI_FP8_VERSION, .out = out, .in = in};
    uint8_t *packed = args->packed.data;
    memcpy(packed, &header, sizeof header);
    for (int64_t o = 0; o < out; o += TGI_PANEL_ROWS) {
      for (int64_t b = 0; b * TGI_FP8_BLOCK < in; b++) {
        pack_block(args, o, b, packed + tgi_fp8_block_at(o, b, in));
      }
    }
  }
  return tgi_pack_end(&p, error);
}
