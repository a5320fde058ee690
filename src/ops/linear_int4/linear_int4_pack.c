/* Packing int4 weights, once per model: plain loops. */
#include "ops/linear_int4/linear_int4_packed.h"
#include "tegula/linear_int4.h"

#define SLOT(...) TGI_PACK_SLOT(tg_linear_int4_pack_source, __VA_ARGS__)

static const tg_slot_info slots[] = {
    SLOT(weight, TG_ROLE_IN, TG_LAYOUT_ROWS, 2, TG_DTYPE_BIT(TG_U8), false),
    SLOT(scale, TG_ROLE_IN, TG_LAYOUT_DENSE, 2, TGI_BIT_F32 | TG_DTYPE_BIT(TG_F16), false),
    SLOT(zero_point, TG_ROLE_IN, TG_LAYOUT_DENSE, 2, TG_DTYPE_BIT(TG_U8), true),
    SLOT(packed, TG_ROLE_OUT, TG_LAYOUT_DENSE, 1, TG_DTYPE_BIT(TG_U8), false),
};

static const tg_op_info info = {
    .name = "linear_int4_pack", .num_slots = sizeof slots / sizeof slots[0], .slots = slots};

static tgi_int4_layout layout_of(const tg_linear_int4_pack_source *a)
{
  return (tgi_int4_layout){a->in, a->group_size, a->scale.dtype, tgi_present(&a->zero_point)};
}

int64_t tg_linear_int4_packed_bytes(const tg_linear_int4_pack_source *args)
{
  if (!args || !tgi_int4_group_size(args->group_size) || args->in < 0 ||
      args->in > INT64_MAX / TGI_INT4_LINE_BYTES / 8 || args->weight.shape[0] < 0 ||
      (args->scale.dtype != TG_F32 && args->scale.dtype != TG_F16)) {
    return 0;
  }
  const tgi_int4_layout layout = layout_of(args);
  return tgi_packed_size(args->weight.shape[0], tgi_int4_panel_bytes(&layout));
}

static void check(tgi_call *call, const tg_linear_int4_pack_source *a)
{
  if (call->status != TG_OK) {
    return;
  }
  if (!tgi_int4_group_size(a->group_size)) {
    tgi_fail(call, TG_BAD_ARGUMENT, "group_size", "expected 32, 64 or 128, got %lld",
             (long long)a->group_size);
    return;
  }
  tgi_want_range(call, "in", a->in, 0, INT64_MAX / TGI_INT4_LINE_BYTES / 8);
  if (call->status != TG_OK) {
    return;
  }
  const int64_t out = a->weight.shape[0], groups = tgi_divide_up(a->in, a->group_size);
  TGI_WANT_SHAPE(call, a, weight, out, tgi_divide_up(a->in, 2));
  TGI_WANT_SHAPE(call, a, scale, out, groups);
  TGI_WANT_SHAPE(call, a, zero_point, out, groups);
  tgi_want_packed_bytes(call, &a->packed, tg_linear_int4_packed_bytes(a));
  const uint8_t *zero_point = a->zero_point.data;
  for (int64_t i = 0; tgi_present(&a->zero_point) && call->status == TG_OK && i < out * groups;
       i++) {
    tgi_want_range(call, "zero_point", zero_point[i], 0, 15);
  }
}

/* A panel's part of one group, from column k0 on. */
static void pack_group(const tg_linear_int4_pack_source *a, int64_t first, int64_t g, uint8_t *to)
{
  const tgi_int4_layout l = layout_of(a);
  const int64_t out = a->weight.shape[0], k0 = g * l.group_size, groups = a->scale.shape[1];
  const int64_t k1 = k0 + l.group_size < l.in ? k0 + l.group_size : l.in;
  const size_t scale_bytes = tg_dtype_bytes(l.scale_dtype);
  uint8_t *zero_points = to + TGI_PANEL_ROWS * scale_bytes, *lines = to + tgi_int4_head_bytes(&l);
  memset(to, 0, TGI_PANEL_ROWS * scale_bytes);
  if (l.zero_points) {
    memset(zero_points, 8, TGI_PANEL_ROWS);
  }
  memset(lines, 0x88, (size_t)(tgi_divide_up(k1 - k0, TGI_INT4_LINE_K) * TGI_INT4_LINE_BYTES));
  for (int64_t o = first; o < first + TGI_PANEL_ROWS && o < out; o++) {
    const uint8_t *row = tgi_row(&a->weight, o);
    const int64_t from = o * groups + g;
    memcpy(to + (size_t)(o - first) * scale_bytes,
           (const char *)a->scale.data + (size_t)from * scale_bytes, scale_bytes);
    if (l.zero_points) {
      zero_points[o - first] = ((const uint8_t *)a->zero_point.data)[from];
    }
    for (int64_t k = k0; k < k1; k++) {
      const int value = k % 2 ? row[k / 2] >> 4 : row[k / 2] & 15;
      uint8_t *byte = lines + tgi_int4_value_at(o, k - k0);
      *byte = (uint8_t)(k % 8 < 4 ? (*byte & 0xf0) | value : (*byte & 0x0f) | value << 4);
    }
  }
}

tg_status tg_linear_int4_pack(const tg_linear_int4_pack_source *args, tg_error *error)
{
  tgi_pack_call p;
  tgi_pack_begin(&p, &info, args);
  check(&p.call, args);
  if (p.call.status == TG_OK) {
    const tgi_int4_layout l = layout_of(args);
    const int64_t out = args->weight.shape[0];
    const tgi_packed_header header = {.magic = TGI_INT4_MAGIC,
                                      .version = TGI_INT4_VERSION,
                                      .out = out,
                                      .in = l.in,
                                      .group_size = l.group_size,
                                      .scale_dtype = (int32_t)l.scale_dtype,
                                      .zero_points = l.zero_points};
    uint8_t *packed = args->packed.data;
    memcpy(packed, &header, sizeof header);
    for (int64_t o = 0; o < out; o += TGI_PANEL_ROWS) {
      for (int64_t g = 0; g * l.group_size < l.in; g++) {
        pack_group(args, o, g, packed + tgi_int4_group_at(&l, o, g));
      }
    }
  }
  return tgi_pack_end(&p, error);
}
