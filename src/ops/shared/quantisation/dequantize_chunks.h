/** Dequantising on the CPU: how rows are cut into chunks, and whether stores pass the caches. */
#ifndef TGI_OPS_DEQUANTIZE_CHUNKS_H
#define TGI_OPS_DEQUANTIZE_CHUNKS_H

#include "cpu/bytes.h"
#include "ops/kernels.h"

#include <stdio.h>

typedef struct dequantize_chunks {
  int64_t rows, cols;
  int64_t grain; /* rows of a chunk: some 64 KiB of x, at least one */
  bool stream;   /* x exceeds the caches and its rows are aligned */
} dequantize_chunks;

static inline dequantize_chunks cut_into_chunks(const tg_context *ctx, const tg_tensor *x)
{
  enum { kPieceBytes = 64 << 10 };
  const int64_t element = (int64_t)tg_dtype_bytes(x->dtype), bytes = x->shape[1] * element;
  return (dequantize_chunks){.rows = x->shape[0],
                             .cols = x->shape[1],
                             .grain = bytes > 0 && bytes < kPieceBytes ? kPieceBytes / bytes : 1,
                             .stream = tgi_streamable(x->data, tgi_stride(x, 0), (size_t)element) &&
                                       tgi_exceeds_cache(ctx, tgi_span_bytes(x))};
}

static inline void describe_chunks(const tg_context *ctx, const tg_tensor *x, char *text,
                                   size_t bytes)
{
  const dequantize_chunks c = cut_into_chunks(ctx, x);
  snprintf(text, bytes, "chunks of %lld rows, %s stores", (long long)c.grain,
           c.stream ? "streaming" : "cached");
}

#endif
