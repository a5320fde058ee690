/**
 * What packed quantised weights have in common: a header that says what they hold, then panels of
 * 32 rows. The buffer may lie at any address, so everything in it is read and written by copies.
 */
#ifndef TGI_CORE_PACKED_WEIGHT_H
#define TGI_CORE_PACKED_WEIGHT_H

#include "core/checks.h"
#include <string.h>

enum { TGI_PANEL_ROWS = 32, TGI_PACKED_HEADER_BYTES = 64 };

/** First bytes of a header: what the op is called with and no other buffer is likely to hold. */
#define TGI_PACKED_MAGIC_BYTES 8

typedef struct tgi_packed_header {
  char magic[TGI_PACKED_MAGIC_BYTES]; /* "TGqint8", "TGqint4", "TGqfp8", "TGmxfp4" */
  int64_t out, in;
  int64_t group_size;  /* int4: 32, 64, 128; else 0 */
  int32_t scale_dtype; /* int4: f32 or f16; else 0 */
  int32_t zero_points; /* int4: 1 if there are any; else 0 */
  int64_t experts;     /* mxfp4; else 0 */
  int64_t version;     /* of the layout, for each magic */
  int64_t reserved;    /* 0 */
} tgi_packed_header;

_Static_assert(sizeof(tgi_packed_header) == TGI_PACKED_HEADER_BYTES, "a header fills a cache line");

static inline int64_t tgi_divide_up(int64_t a, int64_t b)
{
  return a / b + (a % b != 0);
}

static inline int64_t tgi_panel_count(int64_t out)
{
  return tgi_divide_up(out, TGI_PANEL_ROWS);
}

/** Bytes of a buffer with panels of `panel_bytes`; 0 if that is too much for a view. */
static inline int64_t tgi_packed_size(int64_t out, int64_t panel_bytes)
{
  int64_t bytes;
  if (__builtin_mul_overflow(tgi_panel_count(out), panel_bytes, &bytes) ||
      __builtin_add_overflow(bytes, TGI_PACKED_HEADER_BYTES, &bytes)) {
    return 0;
  }
  return bytes;
}

static inline tgi_packed_header tgi_packed_header_of(const void *packed)
{
  tgi_packed_header h;
  memcpy(&h, packed, sizeof h);
  return h;
}

/** One more fact: `weight` begins with a header of this magic and version, for extents [out, in].
 * False if it does not, or if the call has failed, has no memory yet, or has it on a device. */
static inline bool tgi_want_packed(tgi_call *call, const tg_tensor *weight, const char *magic,
                                   int64_t version, int64_t out, int64_t in)
{
  if (call->status != TG_OK || call->sizing) {
    return false;
  }
  if (weight->shape[0] < TGI_PACKED_HEADER_BYTES) {
    tgi_fail(call, TG_BAD_SHAPE, "weight", "expected at least %d bytes, got %lld",
             TGI_PACKED_HEADER_BYTES, (long long)weight->shape[0]);
    return false;
  }
  if (call->ctx->device) {
    return false; /* its kernels compare the header where it lies */
  }
  const tgi_packed_header h = tgi_packed_header_of(weight->data);
  if (memcmp(h.magic, magic, TGI_PACKED_MAGIC_BYTES) != 0) {
    tgi_fail(call, TG_BAD_ARGUMENT, "weight", "expected a weight packed for this op, got others");
  } else if (h.version != version) {
    tgi_fail(call, TG_BAD_ARGUMENT, "weight", "expected version %lld of the layout, got %lld",
             (long long)version, (long long)h.version);
  } else if (h.out != out || h.in != in) {
    tgi_fail(call, TG_BAD_SHAPE, "weight", "expected a packed [%lld, %lld], got [%lld, %lld]",
             (long long)out, (long long)in, (long long)h.out, (long long)h.in);
  }
  return call->status == TG_OK;
}

/**
 * Checks a call of a packing function, which has no context, like one of an op: `info` names the
 * fields of its args struct. The message goes to `error` by tgi_pack_end.
 */
typedef struct tgi_pack_call {
  tgi_message message;
  tg_context bare; /* what checks report on */
  tgi_call call;
} tgi_pack_call;

static inline void tgi_pack_begin(tgi_pack_call *p, const tg_op_info *info, const void *args)
{
  memset(p, 0, sizeof *p);
  p->bare.backend = TG_BACKEND_CPU;
  p->bare.message = &p->message;
  p->call = tgi_call_begin(&p->bare, info, args, false);
}

static inline tg_status tgi_pack_end(const tgi_pack_call *p, tg_error *error)
{
  return tgi_error_set(error, p->call.status, "%s", p->message.text);
}

/** One more fact: `packed` has the bytes that the extents make; 0 is what functions of extents
 * return for more than a view can have. */
static inline void tgi_want_packed_bytes(tgi_call *call, const tg_tensor *packed, int64_t bytes)
{
  if (call->status == TG_OK && bytes == 0) {
    tgi_fail(call, TG_BAD_SHAPE, "packed",
             "expected extents of less than 2^63 packed bytes, got larger ones");
  }
  tgi_want_shape(call, "packed", packed, 1, &bytes);
}

/** A line of such an `info`. */
#define TGI_PACK_SLOT(args, name, role, layout, ndim, dtypes, optional)                            \
  {                                                                                                \
#name, TG_KIND_TENSOR, role, layout, ndim, dtypes, optional, NULL, offsetof(args, name)        \
  }

#endif
