/**
 * An element-wise call as pieces: runs of elements that lie without gaps in every tensor. Rows that
 * follow each other in all tensors are one long run, cut into pieces of 64 KiB, so that narrow rows
 * cost no more than wide ones; otherwise each row is a piece. Pieces depend on the problem alone.
 */
#ifndef TGI_CPU_PIECES_H
#define TGI_CPU_PIECES_H

#include "core/context_state.h"
#include "core/tensor_view.h"
#include "cpu/simd.h"
#include <stdio.h>

enum { TGI_PIECE_BYTES = 64 << 10 };

typedef struct tgi_pieces {
  int64_t count, elements; /* pieces; elements of each in a tensor of `cols` columns */
  int64_t total;           /* elements of a dense call; 0: pieces are rows */
  int64_t cols, element_bytes;
  bool stream; /* the outputs are stored past the caches */
} tgi_pieces;

/**
 * Cuts a call on tensors of `rows` rows, all of one dtype. Their rows have `cols` elements or twice
 * as many. Absent tensors do not count. Outputs are streamed if none replaces an input, all take
 * aligned stores and the largest of them exceeds the caches.
 */
static inline tgi_pieces tgi_cut(const tg_context *ctx, int64_t rows, int64_t cols,
                                 const tg_tensor *const *in, int num_in,
                                 const tg_tensor *const *out, int num_out)
{
  tgi_pieces p = {
      .count = rows, .elements = cols, .cols = cols, .element_bytes = 1, .stream = true};
  bool dense = true;
  for (int i = 0; i < num_in; i++) {
    if (tgi_present(in[i])) {
      p.element_bytes = (int64_t)tg_dtype_bytes(in[i]->dtype);
      dense = dense && tgi_is_dense(in[i]);
    }
  }
  for (int o = 0; o < num_out; o++) {
    dense = dense && (!tgi_present(out[o]) || tgi_is_dense(out[o]));
  }
  if (dense) {
    p.total = rows * cols;
    p.elements = TGI_PIECE_BYTES / p.element_bytes;
    p.count = (p.total + p.elements - 1) / p.elements;
  }
  size_t largest = 0;
  for (int o = 0; o < num_out; o++) {
    if (!tgi_present(out[o])) {
      continue;
    }
    const size_t bytes = tgi_span_bytes(out[o]);
    const int64_t step = dense ? p.elements : tgi_stride(out[o], 0);
    largest = bytes > largest ? bytes : largest;
    p.stream = p.stream && tgi_streamable(out[o]->data, step, (size_t)p.element_bytes);
    for (int i = 0; i < num_in; i++) {
      p.stream = p.stream && out[o]->data != in[i]->data;
    }
  }
  p.stream = p.stream && tgi_exceeds_cache(ctx, largest);
  return p;
}

/** Pieces that one thread takes at a time. */
static inline int64_t tgi_pieces_grain(const tgi_pieces *p)
{
  const int64_t bytes = p->elements * p->element_bytes;
  return bytes < TGI_PIECE_BYTES ? TGI_PIECE_BYTES / bytes : 1;
}

/** Where piece i starts in a tensor of the call; NULL if it is absent. */
static inline void *tgi_piece(const tgi_pieces *p, const tg_tensor *t, int64_t i)
{
  if (!tgi_present(t)) {
    return NULL;
  }
  return p->total ? (char *)t->data + i * p->elements * p->element_bytes * (t->shape[1] / p->cols)
                  : tgi_row(t, i);
}

/** Elements of piece i, as of a tensor of `cols` columns. */
static inline int64_t tgi_piece_length(const tgi_pieces *p, int64_t i)
{
  const int64_t left = p->total - i * p->elements;
  return p->total && left < p->elements ? left : p->elements;
}

/** Line of `tegula explain`. */
static inline void tgi_pieces_describe(const tgi_pieces *p, char *text, size_t bytes)
{
  snprintf(text, bytes, "%lld pieces of %lld elements, %s stores", (long long)p->count,
           (long long)p->elements, p->stream ? "streaming" : "cached");
}

#endif
