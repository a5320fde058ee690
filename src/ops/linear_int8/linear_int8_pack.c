/* Packing int8 weights, once per model: plain loops. */
#include "core/values/half.h"
#include "ops/linear_int8/linear_int8_packed.h"
#include "tegula/linear_int8.h"

#define SLOT(...) TGI_PACK_SLOT(tg_linear_int8_pack_source, __VA_ARGS__)

static const tg_slot_info slots[] = {
    SLOT(weight, TG_ROLE_IN, TG_LAYOUT_ROWS, 2, TG_DTYPE_BIT(TG_I8), false),
    SLOT(scale, TG_ROLE_IN, TG_LAYOUT_DENSE, 1, TGI_BIT_F32, false),
    SLOT(zero_point, TG_ROLE_IN, TG_LAYOUT_DENSE, 1, TG_DTYPE_BIT(TG_I8) | TG_DTYPE_BIT(TG_I32),
         true),
    SLOT(packed, TG_ROLE_OUT, TG_LAYOUT_DENSE, 1, TG_DTYPE_BIT(TG_U8), false),
};

static const tg_op_info info = {
    .name = "linear_int8_pack", .num_slots = sizeof slots / sizeof slots[0], .slots = slots};

int64_t tg_linear_int8_packed_bytes(int64_t out, int64_t in)
{
  int64_t most;
  if (out < 0 || in < 0 || __builtin_mul_overflow(in, 2 * TGI_INT8_LINE_BYTES, &most)) {
    return 0;
  }
  return tgi_packed_size(out, tgi_int8_panel_bytes(in));
}

/* Element o of a tensor with one value for each row or one for all. */
static double value_of(const tg_tensor *t, int64_t o)
{
  return tgi_load(t->data, t->dtype, t->shape[0] == 1 ? 0 : o);
}

static void check(tgi_call *call, const tg_linear_int8_pack_source *a)
{
  if (call->status != TG_OK) {
    return;
  }
  const int64_t out = a->weight.shape[0], in = a->weight.shape[1];
  if (a->scale.shape[0] != 1) {
    TGI_WANT_SHAPE(call, a, scale, out);
  }
  TGI_WANT_SHAPE(call, a, zero_point, a->scale.shape[0]);
  tgi_want_packed_bytes(call, &a->packed, tg_linear_int8_packed_bytes(out, in));
  for (int64_t o = 0; tgi_present(&a->zero_point) && o < a->zero_point.shape[0]; o++) {
    if (call->status == TG_OK) {
      const int64_t zero_point = (int64_t)value_of(&a->zero_point, o);
      tgi_want_range(call, "zero_point", zero_point, -128, 127);
    }
  }
}

static void put_f32(uint8_t *to, float v)
{
  memcpy(to, &v, sizeof v);
}

static void pack_panel(const tg_linear_int8_pack_source *a, int64_t first, uint8_t *panel)
{
  const int64_t out = a->weight.shape[0], in = a->weight.shape[1];
  memset(panel, 0, TGI_INT8_PANEL_HEAD);
  memset(panel + TGI_INT8_PANEL_HEAD, 128, (size_t)(tgi_int8_lines(in) * TGI_INT8_LINE_BYTES));
  for (int64_t o = first; o < first + TGI_PANEL_ROWS && o < out; o++) {
    const double zero_point = tgi_present(&a->zero_point) ? value_of(&a->zero_point, o) : 0;
    const int8_t *row = tgi_row(&a->weight, o);
    put_f32(panel + (o - first) * 4, (float)value_of(&a->scale, o));
    put_f32(panel + (TGI_PANEL_ROWS + o - first) * 4, (float)(128 + zero_point));
    for (int64_t k = 0; k < in; k++) {
      panel[tgi_int8_value_at(o, k)] = (uint8_t)(row[k] + 128);
    }
  }
}

tg_status tg_linear_int8_pack(const tg_linear_int8_pack_source *args, tg_error *error)
{
  tgi_pack_call p;
  tgi_pack_begin(&p, &info, args);
  check(&p.call, args);
  if (p.call.status == TG_OK) {
    const int64_t out = args->weight.shape[0], in = args->weight.shape[1];
    const tgi_packed_header header = {
        .magic = TGI_INT8_MAGIC, .version = TGI_INT8_VERSION, .out = out, .in = in};
    uint8_t *packed = args->packed.data;
    memcpy(packed, &header, sizeof header);
    for (int64_t o = 0; o < out; o += TGI_PANEL_ROWS) {
      pack_panel(args, o, packed + tgi_int8_panel_at(o, in));
    }
  }
  return tgi_pack_end(&p, error);
}
