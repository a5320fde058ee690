/**
 * What the CPU kernels of attention share: blocks of query rows, which keys they see, and the dense
 * f32 tiles that they work on.
 *
 * Rows of one kv head's whole group form one list: row r is query r / group of head
 * kv_head * group + r % group. A block is kBlockRows rows in a run, so that a group shares its
 * keys' tiles and few queries with many heads still fill the vectors. In tiles the rows lie along
 * the lanes
 * ("panels" of kPanel rows): scores are s[key][row], softmax runs down the columns, and keys and
 * values are read as they lie, one element at a time against a vector of rows.
 */
#ifndef TGI_OPS_ATTENTION_BLOCK_H
#define TGI_OPS_ATTENTION_BLOCK_H

#include "cpu/tile.h"
#include "cpu/transpose.h"
#include "ops/attention/attention_layout.h"

enum {
  kPanel = TGI_TILE_VECTORS * TGI_LANES,
  kPanels = 64 / kPanel + (64 % kPanel != 0),
  kBlockRows = kPanels * kPanel, /* 64, or 72 with 8 and 4 lanes */
  kTileKeys = 64,
};

typedef struct attention_block {
  const tgi_attention_layout *l;
  tgi_attention_sequence s;
  int64_t kv_head, first_row, rows;
  /* Key k of the sequence is row s.first + k of its extent. Row r sees keys low[r] .. high[r] - 1;
   * a row that sees none, and lanes past the last row, have 0 .. -1. */
  int64_t low[kBlockRows], high[kBlockRows];
  int64_t begin, end;         /* keys that some row sees lie in here; begin == end: none */
  int64_t all_begin, all_end; /* keys that every row sees; empty if all_begin >= all_end */
} attention_block;

static inline int64_t max_i64(int64_t a, int64_t b)
{
  return a > b ? a : b;
}

static inline int64_t round_up(int64_t n, int64_t to)
{
  return (n + to - 1) / to * to;
}

/** Floats of a dense row of n elements: whole vectors. */
static inline int64_t padded(int64_t n)
{
  return round_up(n, TGI_LANES);
}

/** The keys of row i of the sequence's queries: the visibility rule as an interval. */
static inline void visible_keys(const tgi_attention_layout *l, const tgi_attention_sequence *s,
                                int64_t i, int64_t *low, int64_t *high)
{
  const int64_t p = s->position - s->first + i;
  *low = 0;
  *high = s->count;
  if (l->causal) {
    *high = tgi_min_i64(*high, p + 1);
  } else if (l->window > 0) {
    *high = tgi_min_i64(*high, p + l->window);
  }
  if (l->window > 0) {
    *low = max_i64(0, p - l->window + 1);
  }
  if (*high <= *low) {
    *low = *high = 0;
  }
}

/** Extends the block's key ranges by row r; after its low and high are set. */
static inline void block_include(attention_block *k, int64_t r)
{
  if (k->high[r] > k->low[r]) {
    const bool first = k->begin == k->end;
    k->begin = first ? k->low[r] : tgi_min_i64(k->begin, k->low[r]);
    k->end = first ? k->high[r] : max_i64(k->end, k->high[r]);
  }
  k->all_begin = max_i64(k->all_begin, k->low[r]);
  k->all_end = tgi_min_i64(k->all_end, k->high[r]);
}

/** Block `index` of the rows that share kv_head in sequence s. rows <= 0: past the last. */
static inline void block_init(attention_block *k, const tgi_attention_layout *l,
                              const tgi_attention_sequence *s, int64_t kv_head, int64_t index)
{
  k->l = l;
  k->s = *s;
  k->kv_head = kv_head;
  k->first_row = index * kBlockRows;
  k->rows = tgi_min_i64(kBlockRows, s->nq * l->group - k->first_row);
  k->begin = k->end = k->all_begin = 0;
  k->all_end = s->count;
  for (int64_t r = 0; r < kBlockRows; r++) {
    k->low[r] = k->high[r] = 0;
    if (r < k->rows) {
      visible_keys(l, s, (k->first_row + r) / l->group, &k->low[r], &k->high[r]);
      block_include(k, r);
    }
  }
}

static inline int64_t row_query(const attention_block *k, int64_t r)
{
  return (k->first_row + r) / k->l->group;
}

static inline int64_t row_head(const attention_block *k, int64_t r)
{
  return k->kv_head * k->l->group + (k->first_row + r) % k->l->group;
}

/** Row r of the block in q, out or a tensor of their layout. */
static inline void *block_row(const attention_block *k, const tg_tensor *t, int64_t r)
{
  const int64_t i = k->s.q_index * tgi_stride(t, 0) +
                    (k->s.q_first + row_query(k, r)) * tgi_stride(t, 1) +
                    row_head(k, r) * tgi_stride(t, 2);
  return (char *)t->data + i * (int64_t)tg_dtype_bytes(t->dtype);
}

/** Key `key` of the block's sequence in k, v or a tensor of their layout. */
static inline void *block_key(const attention_block *k, const tg_tensor *t, int64_t key)
{
  const int64_t i =
      tgi_attention_key_offset(k->l, &k->s, t, k->s.first + key) + k->kv_head * tgi_stride(t, 2);
  return (char *)t->data + i * (int64_t)tg_dtype_bytes(t->dtype);
}

/** Index of row r in lse. */
static inline int64_t block_lse(const attention_block *k, int64_t r)
{
  return (k->s.q_index * k->l->q_heads + row_head(k, r)) * k->l->nq + k->s.q_first +
         row_query(k, r);
}

/** Writes n elements as f32 times `scale`, then zeros up to padded(n). Returns a vector that has a
 * NaN lane if and only if some element is NaN or infinite. */
TGI_INLINE vf widen_row_as(float *to, const void *from, int t, int64_t n, vf scale)
{
  vf bad = vf_zero();
  int64_t c = 0;
  for (; c + TGI_LANES <= n; c += TGI_LANES) {
    const vf v = vf_load(from, t, c);
    bad = vf_fma(v, vf_zero(), bad);
    vf_store_f32(to + c, v * scale);
  }
  if (c < n) {
    const vf v = vf_load_part(from, t, c, n - c);
    bad = vf_fma(v, vf_zero(), bad);
    vf_store_f32(to + c, v * scale);
  }
  return bad;
}

static inline bool any_nan(vf v)
{
  const float sum = vf_sum(v);
  return sum != sum;
}

/** Keys first .. first + n - 1 of t (k or v) as dense rows, zero rows up to a multiple of
 * TGI_TILE_ROWS. Returns true if some element is NaN or infinite. */
static inline bool load_keys(const attention_block *k, const tg_tensor *t, int64_t first, int64_t n,
                             float *to)
{
  const int64_t width = t->shape[3], pitch = padded(width);
  vf bad = vf_zero();
  TGI_SWITCH_FLOAT(
      t->dtype, T, for (int64_t j = 0; j < n; j++) {
        const void *from = block_key(k, t, first + j);
        bad = bad + widen_row_as(to + j * pitch, from, T, width, vf_set1(1.0f));
      });
  memset(to + n * pitch, 0, (size_t)((round_up(n, TGI_TILE_ROWS) - n) * pitch) * sizeof *to);
  return any_nan(bad);
}

/** All rows of the block in t (q or dout) as dense rows times `scale`; zero rows up to a multiple
 * of TGI_LANES. Returns true if some element is NaN or infinite. */
static inline bool load_rows(const attention_block *k, const tg_tensor *t, float scale, float *to)
{
  const int64_t width = t->shape[3], pitch = padded(width);
  vf bad = vf_zero();
  TGI_SWITCH_FLOAT(
      t->dtype, T, for (int64_t r = 0; r < k->rows; r++) {
        const void *from = block_row(k, t, r);
        bad = bad + widen_row_as(to + r * pitch, from, T, width, vf_set1(scale));
      });
  memset(to + k->rows * pitch, 0,
         (size_t)((round_up(k->rows, TGI_LANES) - k->rows) * pitch) * sizeof *to);
  return any_nan(bad);
}

/** Rows of a dense tile that hold a NaN or an infinity. A product would carry them into every
 * result, since 0 * NaN is NaN; so they are taken out of the tile and added where they are visible.
 */
typedef struct held_rows {
  int64_t count, index[kBlockRows];
} held_rows;

/** Lists such rows among the first n and zeroes them. */
static inline void hold_rows(float *rows, int64_t n, int64_t pitch, held_rows *held)
{
  held->count = 0;
  for (int64_t r = 0; r < n; r++) {
    vf bad = vf_zero();
    for (int64_t c = 0; c < pitch; c += TGI_LANES) {
      bad = vf_fma(vf_load_f32(rows + r * pitch + c), vf_zero(), bad);
    }
    if (any_nan(bad)) {
      held->index[held->count++] = r;
      memset(rows + r * pitch, 0, (size_t)pitch * sizeof *rows);
    }
  }
}

/** Dense rows [kBlockRows][pitch] to panels [kPanels][pitch][kPanel], as far as `rows` reach. */
static inline void rows_to_panels(const float *from, int64_t pitch, int64_t rows, float *to)
{
  for (int64_t r = 0; r < rows; r += TGI_LANES) {
    float *panel = to + r / kPanel * kPanel * pitch + r % kPanel;
    for (int64_t c = 0; c < pitch; c += TGI_LANES) {
      vf square[TGI_LANES];
      TGI_UNROLLED(i, TGI_LANES)
      {
        square[i] = vf_load_f32(from + (r + i) * pitch + c);
      }
      vf_transpose(square);
      TGI_UNROLLED(i, TGI_LANES)
      {
        vf_store_f32(panel + (c + i) * kPanel, square[i]);
      }
    }
  }
}

/** The way back; to has whole vectors of rows. */
static inline void panels_to_rows(const float *from, int64_t pitch, int64_t rows, float *to)
{
  for (int64_t r = 0; r < rows; r += TGI_LANES) {
    const float *panel = from + r / kPanel * kPanel * pitch + r % kPanel;
    for (int64_t c = 0; c < pitch; c += TGI_LANES) {
      vf square[TGI_LANES];
      TGI_UNROLLED(i, TGI_LANES)
      {
        square[i] = vf_load_f32(panel + (c + i) * kPanel);
      }
      vf_transpose(square);
      TGI_UNROLLED(i, TGI_LANES)
      {
        vf_store_f32(to + (r + i) * pitch + c, square[i]);
      }
    }
  }
}

/** n floats times `scale`, rounded to dtype. */
static inline void narrow_row(void *to, int dtype, const float *from, int64_t n, float scale)
{
  const vf s = vf_set1(scale);
  TGI_SWITCH_FLOAT(
      dtype, T, int64_t c = 0; for (; c + TGI_LANES <= n; c += TGI_LANES) {
        vf_store(to, T, c, vf_load_f32(from + c) * s);
      } if (c < n) { vf_store_part(to, T, c, n - c, vf_load_f32(from + c) * s); });
}

/** Vectors of panel `panel` that hold rows of the block. */
static inline int64_t panel_vectors(const attention_block *k, int64_t panel)
{
  const int64_t rows = tgi_min_i64(kPanel, k->rows - panel * kPanel);
  return rows > 0 ? (rows + TGI_LANES - 1) / TGI_LANES : 0;
}

/** A part of a tile that is worked on at once: keys [j0, j1) of the tile, whole TGI_TILE_ROWS, by
 * `vectors` vectors of a panel's rows from `row` on. */
typedef struct strip {
  int64_t row, vectors, j0, j1;
  bool masked;                           /* some pair is not visible: then vectors is 1, and */
  float low[TGI_LANES], high[TGI_LANES]; /* lane i sees keys low[i] <= j < high[i] of the tile */
} strip;

/** Keys of a tile that lanes row .. row + TGI_LANES - 1 of the block see; false: none. */
static inline bool mask_strip(const attention_block *k, int64_t row, int64_t tile, int64_t keys,
                              strip *s)
{
  int64_t j0 = keys, j1 = 0;
  for (int64_t i = 0; i < TGI_LANES; i++) {
    const int64_t low = max_i64(k->low[row + i] - tile, 0);
    const int64_t high = max_i64(tgi_min_i64(k->high[row + i] - tile, keys), 0);
    s->low[i] = (float)tgi_min_i64(low, keys);
    s->high[i] = (float)high;
    if (low < high) {
      j0 = tgi_min_i64(j0, low);
      j1 = max_i64(j1, high);
    }
  }
  s->row = row;
  s->vectors = 1;
  s->masked = true;
  s->j0 = j0 / TGI_TILE_ROWS * TGI_TILE_ROWS;
  s->j1 = round_up(j1, TGI_TILE_ROWS);
  return j0 < j1;
}

typedef void strip_work(void *arg, const strip *s, int64_t tile, int64_t keys);

/** Hands the visible parts of a tile to `work`: whole panels where every row sees every key,
 * single vectors with the range of keys that they need elsewhere. */
static inline void each_strip(const attention_block *k, int64_t tile, int64_t keys,
                              strip_work *work, void *arg)
{
  const bool whole = keys % TGI_TILE_ROWS == 0 && tile >= k->all_begin && tile + keys <= k->all_end;
  for (int64_t panel = 0; panel < kPanels; panel++) {
    const int64_t vectors = panel_vectors(k, panel);
    strip s = {.row = panel * kPanel, .vectors = vectors, .j0 = 0, .j1 = keys};
    if (whole && vectors > 0) {
      work(arg, &s, tile, keys);
    }
    for (int64_t v = 0; v < vectors && !whole; v++) {
      if (mask_strip(k, panel * kPanel + v * TGI_LANES, tile, keys, &s)) {
        work(arg, &s, tile, keys);
      }
    }
  }
}

/** s where the lane sees key j of the tile, else `other`. */
TGI_INLINE vf where_visible(const strip *p, int64_t j, vf s, vf other)
{
  const vf at_j = vf_set1((float)j);
  const vf below = vf_select(vf_lt(at_j, vf_load_f32(p->high)), s, other);
  return vf_select(vf_lt(at_j, vf_load_f32(p->low)), other, below);
}

#endif
