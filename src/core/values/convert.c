/* tg_memory_convert: elements from one dtype to another, between any strides.
 *
 * Method     Rows are cut into tiles, a task each. Where both sides are contiguous along the
 *            columns, a tile is runs of elements that the compiler makes vectors of. Else groups of
 *            rows are converted column by column into a buffer in the first-level cache, and leave
 *            it row by row: of a transposed matrix each cache line is read once.
 * Bound      Memory. */
#include "core/values/convert.h"

#include "core/tensor_view.h"
#include "core/values/half.h"
#include <string.h>

enum { kTileRows = 64, kTileCols = 1024, kGroup = 64, kBufferCols = 64, kTaskElements = 1 << 16 };

#define ALWAYS_INLINE static inline __attribute__((always_inline))

/* The same bits as tgi_bf16_to_f32, ..., with the dtype a constant. */
ALWAYS_INLINE float load(const void *data, tg_dtype dtype, int64_t i)
{
  return dtype == TG_F32   ? ((const float *)data)[i]
         : dtype == TG_F16 ? tgi_f16_to_f32(((const uint16_t *)data)[i])
                           : tgi_bf16_to_f32(((const uint16_t *)data)[i]);
}

ALWAYS_INLINE void store(void *data, tg_dtype dtype, int64_t i, float v)
{
  if (dtype == TG_F32) {
    ((float *)data)[i] = v;
  } else {
    ((uint16_t *)data)[i] = dtype == TG_F16 ? tgi_f32_to_f16(v) : tgi_f32_to_bf16(v);
  }
}

ALWAYS_INLINE void convert_run(void *to, tg_dtype t, int64_t to_step, const void *from, tg_dtype f,
                               int64_t from_step, int64_t n)
{
  for (int64_t i = 0; i < n; i++) {
    store(to, t, i * to_step, load(from, f, i * from_step));
  }
}

/* Equal dtypes: bits, so that every NaN stays the one it is. */
static void copy_run(void *to, int64_t to_step, const void *from, int64_t from_step, int64_t n,
                     size_t element)
{
  if (to_step == 1 && from_step == 1) {
    memcpy(to, from, (size_t)n * element);
  } else if (element == 4) {
    for (int64_t i = 0; i < n; i++) {
      memcpy((uint32_t *)to + i * to_step, (const uint32_t *)from + i * from_step, 4);
    }
  } else {
    for (int64_t i = 0; i < n; i++) {
      memcpy((uint16_t *)to + i * to_step, (const uint16_t *)from + i * from_step, 2);
    }
  }
}

#define PAIR(t, f)                                                                                 \
  if (to_dtype == (t) && from_dtype == (f)) {                                                      \
    if (to_step == 1 && from_step == 1) {                                                          \
      convert_run(to, t, 1, from, f, 1, n);                                                        \
    } else {                                                                                       \
      convert_run(to, t, to_step, from, f, from_step, n);                                          \
    }                                                                                              \
  }

static void run(void *to, tg_dtype to_dtype, int64_t to_step, const void *from, tg_dtype from_dtype,
                int64_t from_step, int64_t n)
{
  if (to_dtype == from_dtype) {
    copy_run(to, to_step, from, from_step, n, tg_dtype_bytes(to_dtype));
    return;
  }
  PAIR(TG_F32, TG_BF16)
  PAIR(TG_F32, TG_F16)
  PAIR(TG_BF16, TG_F32)
  PAIR(TG_BF16, TG_F16)
  PAIR(TG_F16, TG_F32)
  PAIR(TG_F16, TG_BF16)
}

typedef struct job {
  const tg_tensor *to, *from;
  int64_t across; /* tiles in a row of them */
} job;

static char *element_at(const tg_tensor *t, int64_t i, int64_t j)
{
  return (char *)t->data +
         (i * tgi_stride(t, 0) + j * tgi_stride(t, 1)) * (int64_t)tg_dtype_bytes(t->dtype);
}

static int64_t least(int64_t a, int64_t b)
{
  return a < b ? a : b;
}

/* Rows [i0, i1), at most kGroup, and columns [j0, j1), at most kBufferCols. */
static void convert_group(const job *w, int64_t i0, int64_t i1, int64_t j0, int64_t j1)
{
  _Alignas(64) char buffer[kGroup * kBufferCols * sizeof(float)];
  const size_t element = tg_dtype_bytes(w->to->dtype);
  for (int64_t j = j0; j < j1; j++) {
    run(buffer + (size_t)((j - j0) * kGroup) * element, w->to->dtype, 1, element_at(w->from, i0, j),
        w->from->dtype, tgi_stride(w->from, 0), i1 - i0);
  }
  for (int64_t i = i0; i < i1; i++) {
    copy_run(element_at(w->to, i, j0), tgi_stride(w->to, 1), buffer + (size_t)(i - i0) * element,
             kGroup, j1 - j0, element);
  }
}

static void convert_tiles(void *arg, int64_t begin, int64_t end, int thread)
{
  const job *w = arg;
  const bool along = tgi_stride(w->to, 1) == 1 && tgi_stride(w->from, 1) == 1;
  const int64_t rows = along ? 1 : kGroup, cols = along ? kTileCols : kBufferCols;
  (void)thread;
  for (int64_t tile = begin; tile < end; tile++) {
    const int64_t i0 = tile / w->across * kTileRows, j0 = tile % w->across * kTileCols;
    const int64_t i1 = least(i0 + kTileRows, w->to->shape[0]);
    const int64_t j1 = least(j0 + kTileCols, w->to->shape[1]);
    for (int64_t i = i0; i < i1; i += rows) {
      for (int64_t j = j0; j < j1; j += cols) {
        if (along) {
          run(element_at(w->to, i, j), w->to->dtype, 1, element_at(w->from, i, j), w->from->dtype,
              1, least(cols, j1 - j));
        } else {
          convert_group(w, i, least(i + rows, i1), j, least(j + cols, j1));
        }
      }
    }
  }
}

void tgi_convert(const tg_context *ctx, const tg_tensor *to, const tg_tensor *from)
{
  const int64_t rows = to->shape[0], cols = to->shape[1];
  const job w = {.to = to, .from = from, .across = (cols + kTileCols - 1) / kTileCols};
  const int64_t down = (rows + kTileRows - 1) / kTileRows;
  const int64_t elements = least(rows, kTileRows) * least(cols, kTileCols);
  tgi_for(ctx, down * w.across, 1 + (kTaskElements - 1) / elements, convert_tiles,
          (void *)(uintptr_t)&w);
}
