/**
 * What kernels share that pass over rows more than once: how rows are cut into chunks and groups,
 * how the rows of a group are addressed, and which results go past the caches.
 */
#ifndef TGI_CPU_ROW_PASS_H
#define TGI_CPU_ROW_PASS_H

#include "core/context_state.h"
#include "core/tensor_view.h"
#include "cpu/simd.h"

enum { TGI_CHUNK_BYTES = 512 << 10, TGI_GROUP_ROWS_MAX = 8 };

static inline int64_t tgi_row_bytes(const tg_tensor *t)
{
  return t->shape[1] * (int64_t)tg_dtype_bytes(t->dtype);
}

/** Rows of a chunk, where rows go one by one. Long chunks, for the first row of one is not
 * prefetched; at least 16 chunks where there are rows for it. */
static inline int64_t tgi_chunk_rows(const tg_tensor *x)
{
  const int64_t rows = tgi_min_i64(TGI_CHUNK_BYTES / tgi_row_bytes(x), x->shape[0] / 16);
  return rows > 1 ? rows : 1;
}

/** Rows of a group, whose two inputs are read twice: as many as the first-level cache holds beside
 * the weight and the sums, if that is more than one; else `far_bytes` of each input, which leave
 * the second level room for the next group, but at least two. */
static inline int64_t tgi_group_rows(const tg_tensor *x, int64_t far_bytes)
{
  const int64_t bytes = tgi_row_bytes(x), near = (16 << 10) / (2 * bytes);
  const int64_t rows = near > 1 ? near : far_bytes / bytes;
  return rows > TGI_GROUP_ROWS_MAX ? TGI_GROUP_ROWS_MAX : rows > 1 ? rows : 2;
}

/** Whether `t`, written while `input` is read, goes past the caches: it is too large for them and
 * does not replace the input. */
static inline bool tgi_streams(const tg_context *ctx, const tg_tensor *t, const tg_tensor *input)
{
  return t->data != input->data &&
         tgi_streamable(t->data, tgi_stride(t, 0), tg_dtype_bytes(t->dtype)) &&
         tgi_exceeds_cache(ctx, tgi_span_bytes(t));
}

/** Rows of one tensor: the first, and bytes from one to the next. One such pair instead of a
 * pointer for each row leaves registers free. */
typedef struct tgi_rows {
  char *first;
  int64_t step;
} tgi_rows;

static inline tgi_rows tgi_rows_from(const tg_tensor *t, int64_t i)
{
  return (tgi_rows){tgi_row(t, i), tgi_stride(t, 0) * (int64_t)tg_dtype_bytes(t->dtype)};
}

TGI_INLINE void *tgi_row_at(tgi_rows rows, int r)
{
  return rows.first + r * rows.step;
}

/** Prefetches the line of element j in row r, where j is `vector` vectors past the start of one. */
TGI_INLINE void tgi_prefetch_row(tgi_rows rows, int r, int t, int64_t j, int vector)
{
  if (vector * TGI_LANES * (t == TG_F32 ? 4 : 2) % 64 == 0) {
    tgi_prefetch(tgi_row_at(rows, r), t, j);
  }
}

#endif
