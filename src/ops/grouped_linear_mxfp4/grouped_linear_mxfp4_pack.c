/* Packing the MXFP4 weights of experts, once per model, and the way back: four bytes of a row at a
 * time change their places. */
#include "ops/grouped_linear_mxfp4/mxfp4_packed.h"
#include "tegula/grouped_linear_mxfp4.h"

#define SLOT(...) TGI_PACK_SLOT(tg_grouped_linear_mxfp4_pack_source, __VA_ARGS__)

static const tg_slot_info pack_slots[] = {
    SLOT(blocks, TG_ROLE_IN, TG_LAYOUT_DENSE, 4, TG_DTYPE_BIT(TG_U8), false),
    SLOT(scales, TG_ROLE_IN, TG_LAYOUT_DENSE, 3, TG_DTYPE_BIT(TG_U8), false),
    SLOT(packed, TG_ROLE_OUT, TG_LAYOUT_DENSE, 1, TG_DTYPE_BIT(TG_U8), false),
};

static const tg_slot_info unpack_slots[] = {
    SLOT(blocks, TG_ROLE_OUT, TG_LAYOUT_DENSE, 4, TG_DTYPE_BIT(TG_U8), true),
    SLOT(scales, TG_ROLE_OUT, TG_LAYOUT_DENSE, 3, TG_DTYPE_BIT(TG_U8), true),
    SLOT(packed, TG_ROLE_IN, TG_LAYOUT_DENSE, 1, TG_DTYPE_BIT(TG_U8), false),
};

static const tg_op_info pack_info = {.name = "grouped_linear_mxfp4_pack",
                                     .num_slots = sizeof pack_slots / sizeof pack_slots[0],
                                     .slots = pack_slots};

static const tg_op_info unpack_info = {.name = "grouped_linear_mxfp4_unpack",
                                       .num_slots = sizeof unpack_slots / sizeof unpack_slots[0],
                                       .slots = unpack_slots};

int64_t tg_grouped_linear_mxfp4_packed_bytes(int64_t experts, int64_t out, int64_t in)
{
  int64_t panel_bytes, bytes;
  if (experts < 0 || out < 0 || in < 0 ||
      __builtin_mul_overflow(in / TGI_MXFP4_GROUP, TGI_MXFP4_GROUP_BYTES, &panel_bytes) ||
      __builtin_mul_overflow(panel_bytes, tgi_panel_count(out), &bytes) ||
      __builtin_mul_overflow(bytes, experts, &bytes) ||
      __builtin_add_overflow(bytes, TGI_PACKED_HEADER_BYTES, &bytes)) {
    return 0;
  }
  return bytes;
}

/* That with the extents. */
static const tg_tensor *measure(const tg_grouped_linear_mxfp4_pack_source *a)
{
  return tgi_present(&a->blocks) ? &a->blocks : &a->scales;
}

static void check(tgi_call *call, const tg_grouped_linear_mxfp4_pack_source *a)
{
  if (call->status != TG_OK) {
    return;
  }
  const int64_t *extents = measure(a)->shape;
  const int64_t experts = extents[0], out = extents[1], groups = extents[2];
  const int64_t in = groups > INT64_MAX / TGI_MXFP4_GROUP ? INT64_MAX : groups * TGI_MXFP4_GROUP;
  TGI_WANT_SHAPE(call, a, blocks, experts, out, groups, 16);
  TGI_WANT_SHAPE(call, a, scales, experts, out, groups);
  tgi_want_packed_bytes(call, &a->packed, tg_grouped_linear_mxfp4_packed_bytes(experts, out, in));
}

static void check_scales(tgi_call *call, const tg_tensor *scales)
{
  const uint8_t *s = scales->data;
  for (int64_t i = 0, n = call->status == TG_OK ? tgi_numel(scales) : 0; i < n; i++) {
    if (s[i] > TGI_MXFP4_LARGEST) {
      tgi_fail(call, TG_BAD_ARGUMENT, "scales", "expected at most %d, got %d", TGI_MXFP4_LARGEST,
               (int)s[i]);
      return;
    }
  }
}

static void check_header(tgi_call *call, const tg_grouped_linear_mxfp4_pack_source *a)
{
  const int64_t *extents = measure(a)->shape;
  const int64_t out = extents[1], in = extents[2] * TGI_MXFP4_GROUP;
  if (call->status != TG_OK) {
    return;
  }
  const tgi_packed_header h = tgi_packed_header_of(a->packed.data);
  if (memcmp(h.magic, TGI_MXFP4_MAGIC, sizeof h.magic) != 0) {
    tgi_fail(call, TG_BAD_ARGUMENT, "packed", "expected weights packed for this op, got others");
  } else if (h.version != TGI_MXFP4_VERSION) {
    tgi_fail(call, TG_BAD_ARGUMENT, "packed", "expected version %d of the layout, got %lld",
             TGI_MXFP4_VERSION, (long long)h.version);
  } else if (h.experts != extents[0] || h.out != out || h.in != in) {
    tgi_fail(call, TG_BAD_SHAPE, "packed",
             "expected a packed [%lld, %lld, %lld], got [%lld, %lld, %lld]", (long long)extents[0],
             (long long)out, (long long)in, (long long)h.experts, (long long)h.out,
             (long long)h.in);
  }
}

/* Between the rows of a panel, which lie `groups` groups apart, and its place in the packed form:
 * `rows` of them exist. Blocks or scales may be NULL where they are wanted. */
typedef struct panel {
  uint8_t *blocks, *scales, *packed;
  int64_t rows, groups;
} panel;

static void pack_panel(const panel *p)
{
  uint8_t *to = p->packed;
  if (p->rows < TGI_PANEL_ROWS) {
    memset(to, 0, (size_t)(p->groups * TGI_MXFP4_GROUP_BYTES));
  }
  for (int64_t g = 0; g < p->groups; g++, to += TGI_MXFP4_GROUP_BYTES) {
    for (int64_t o = 0; o < p->rows; o++) {
      const int64_t at = o * p->groups + g;
      to[o] = p->scales[at];
      for (int line = 0; line < TGI_MXFP4_LINES; line++) {
        memcpy(to + TGI_PANEL_ROWS + line * TGI_MXFP4_LINE_BYTES + 4 * o,
               p->blocks + 16 * at + 4 * line, 4);
      }
    }
  }
}

static void unpack_panel(const panel *p)
{
  const uint8_t *from = p->packed;
  for (int64_t g = 0; g < p->groups; g++, from += TGI_MXFP4_GROUP_BYTES) {
    for (int64_t o = 0; o < p->rows; o++) {
      const int64_t at = o * p->groups + g;
      if (p->scales) {
        p->scales[at] = from[o];
      }
      for (int line = 0; p->blocks && line < TGI_MXFP4_LINES; line++) {
        memcpy(p->blocks + 16 * at + 4 * line,
               from + TGI_PANEL_ROWS + line * TGI_MXFP4_LINE_BYTES + 4 * o, 4);
      }
    }
  }
}

static void each_panel(const tg_grouped_linear_mxfp4_pack_source *a, void (*move)(const panel *))
{
  const int64_t *extents = measure(a)->shape;
  const int64_t experts = extents[0], out = extents[1], groups = extents[2];
  uint8_t *const blocks = a->blocks.data, *const scales = a->scales.data;
  const tgi_mxfp4_layout l = tgi_mxfp4_layout_of(out, groups * TGI_MXFP4_GROUP);
  for (int64_t e = 0; e < experts; e++) {
    for (int64_t q = 0; q < l.panels; q++) {
      const int64_t o = q * TGI_PANEL_ROWS, at = (e * out + o) * groups;
      move(&(panel){.blocks = blocks ? blocks + 16 * at : NULL,
                    .scales = scales ? scales + at : NULL,
                    .packed = (uint8_t *)a->packed.data + tgi_mxfp4_panel_at(&l, e, q),
                    .rows = out - o < TGI_PANEL_ROWS ? out - o : TGI_PANEL_ROWS,
                    .groups = groups});
    }
  }
}

tg_status tg_grouped_linear_mxfp4_pack(const tg_grouped_linear_mxfp4_pack_source *args,
                                       tg_error *error)
{
  tgi_pack_call p;
  tgi_pack_begin(&p, &pack_info, args);
  check(&p.call, args);
  if (p.call.status == TG_OK) {
    check_scales(&p.call, &args->scales);
  }
  if (p.call.status == TG_OK) {
    const tgi_packed_header header = {.magic = TGI_MXFP4_MAGIC,
                                      .out = args->blocks.shape[1],
                                      .in = args->blocks.shape[2] * TGI_MXFP4_GROUP,
                                      .experts = args->blocks.shape[0],
                                      .version = TGI_MXFP4_VERSION};
    memcpy(args->packed.data, &header, sizeof header);
    each_panel(args, pack_panel);
  }
  return tgi_pack_end(&p, error);
}

tg_status tg_grouped_linear_mxfp4_unpack(const tg_grouped_linear_mxfp4_pack_source *args,
                                         tg_error *error)
{
  tgi_pack_call p;
  tgi_pack_begin(&p, &unpack_info, args);
  if (p.call.status == TG_OK && !tgi_present(&args->blocks) && !tgi_present(&args->scales)) {
    tgi_fail(&p.call, TG_BAD_ARGUMENT, "blocks", "expected blocks or scales, got none");
  }
  check(&p.call, args);
  if (p.call.status == TG_OK) {
    check_header(&p.call, args);
  }
  if (p.call.status == TG_OK) {
    each_panel(args, unpack_panel);
  }
  return tgi_pack_end(&p, error);
}
