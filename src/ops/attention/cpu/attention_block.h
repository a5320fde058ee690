/**
 * What the CPU kernels of attention share: blocks of query rows, the keys that they see, and dense
 * f32 tiles.
 *
 * The rows of one kv head's whole group form one list: row r is query r / group of head kv_head *
 * group + r % group. A block is kBlockRows consecutive rows, so that a group shares its keys'
 * tiles, and few queries with many heads still fill the vectors. In tiles the rows lie along the
 * lanes ("panels" of kPanel rows): scores are s[key][row], the softmax runs down the columns, and
 * keys and values are read in place, one element at a time against a vector of rows.
 */
#ifndef TGI_OPS_ATTENTION_BLOCK_H
#define TGI_OPS_ATTENTION_BLOCK_H

#include "cpu/tile.h"
#include "cpu/transpose.h"
#include "ops/attention/attention_layout.h"

enum {
  kPanel = TGI_TILE_VECTORS * TGI_LANES,
  kPanels = 128 / kPanel,
  kBlockRows = kPanels * kPanel, /* 128, or 120 with 8 and 4 lanes */
  kTileKeys = 64,
};

typedef struct attention_block {
  const tgi_attention_layout *l;
  tgi_attention_sequence s;
  int64_t kv_head, rows;
  int64_t query[kBlockRows], head[kBlockRows]; /* of each row */
  /* Key k of the sequence is row s.first + k of its extent. Row r sees keys low[r] .. high[r] - 1;
   * a row that sees none, and lanes past the last row, have 0 and 0. */
  int64_t low[kBlockRows], high[kBlockRows];
  int64_t begin, end; /* range of keys that some row sees; begin == end: none */
  /* Keys that every row of a panel sees; none if begin >= end. */
  int64_t all_begin[kPanels], all_end[kPanels];
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

/** The block's ranges of keys, from low and high of its rows. */
static inline void block_ranges(attention_block *k)
{
  k->begin = k->end = 0;
  for (int64_t panel = 0; panel < kPanels; panel++) {
    k->all_begin[panel] = 0;
    k->all_end[panel] = k->s.count;
  }
  for (int64_t r = 0; r < k->rows; r++) {
    const int64_t low = k->low[r], high = k->high[r], panel = r / kPanel;
    if (high > low) {
      const bool first = k->begin == k->end;
      k->begin = first ? low : tgi_min_i64(k->begin, low);
      k->end = first ? high : max_i64(k->end, high);
    }
    k->all_begin[panel] = max_i64(k->all_begin[panel], low);
    k->all_end[panel] = tgi_min_i64(k->all_end[panel], high);
  }
}

/** Block `index` of the rows that share kv_head in sequence s. rows <= 0: past the last. */
static inline void block_init(attention_block *k, const tgi_attention_layout *l,
                              const tgi_attention_sequence *s, int64_t kv_head, int64_t index)
{
  const int64_t first = index * kBlockRows;
  int64_t query = first / l->group, head = first % l->group;
  k->l = l;
  k->s = *s;
  k->kv_head = kv_head;
  k->rows = tgi_min_i64(kBlockRows, s->nq * l->group - first);
  for (int64_t r = 0; r < kBlockRows; r++) {
    k->query[r] = k->head[r] = k->low[r] = k->high[r] = 0;
    if (r < k->rows) {
      k->query[r] = query;
      k->head[r] = kv_head * l->group + head;
      visible_keys(l, s, query, &k->low[r], &k->high[r]);
      head++;
      query += head == l->group;
      head = head == l->group ? 0 : head;
    }
  }
  block_ranges(k);
}

/** The number of rows, from r on, that see the same keys of first .. stop - 1 as r does. */
static inline int64_t rows_alike(const attention_block *k, int64_t r, int64_t first, int64_t stop)
{
  int64_t n = 1;
  while (r + n < k->rows && max_i64(k->low[r + n], first) == max_i64(k->low[r], first) &&
         tgi_min_i64(k->high[r + n], stop) == tgi_min_i64(k->high[r], stop)) {
    n++;
  }
  return n;
}

/** Addresses of a block's rows in q, out or a tensor of their layout. */
typedef struct row_map {
  char *base;
  int64_t query_bytes, head_bytes;
} row_map;

static inline row_map map_rows(const attention_block *k, const tg_tensor *t)
{
  const int64_t bytes = (int64_t)tg_dtype_bytes(t->dtype);
  const int64_t i = k->s.q_index * tgi_stride(t, 0) + k->s.q_first * tgi_stride(t, 1);
  return (row_map){(char *)t->data + i * bytes, tgi_stride(t, 1) * bytes, tgi_stride(t, 2) * bytes};
}

static inline void *row_at(const attention_block *k, row_map m, int64_t r)
{
  return m.base + k->query[r] * m.query_bytes + k->head[r] * m.head_bytes;
}

/** Addresses of the keys of a block's sequence in k, v or a tensor of their layout. */
typedef struct key_map {
  char *base; /* of key 0, or with a table of the kv head in block 0 */
  int64_t key_bytes, block_bytes;
} key_map;

static inline key_map map_keys(const attention_block *k, const tg_tensor *t)
{
  const int64_t bytes = (int64_t)tg_dtype_bytes(t->dtype);
  const int64_t first = k->l->has_table ? 0
                                        : k->s.k_index * tgi_stride(t, 0) +
                                              (k->s.k_first + k->s.first) * tgi_stride(t, 1);
  return (key_map){(char *)t->data + (first + k->kv_head * tgi_stride(t, 2)) * bytes,
                   tgi_stride(t, 1) * bytes, tgi_stride(t, 0) * bytes};
}

static inline void *key_at(const attention_block *k, key_map m, int64_t key)
{
  if (!k->l->has_table) {
    return m.base + key * m.key_bytes;
  }
  const int64_t row = k->s.first + key, block = row / k->l->block_size;
  return m.base + k->l->block_table[k->s.b * k->l->max_blocks + block] * m.block_bytes +
         (row - block * k->l->block_size) * m.key_bytes;
}

/** Index of row r in lse. */
static inline int64_t block_lse(const attention_block *k, int64_t r)
{
  return (k->s.q_index * k->l->q_heads + k->head[r]) * k->l->nq + k->s.q_first + k->query[r];
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
  const key_map map = map_keys(k, t);
  vf bad = vf_zero();
  TGI_SWITCH_FLOAT(
      t->dtype, T, for (int64_t j = 0; j < n; j++) {
        const void *from = key_at(k, map, first + j);
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
  const row_map map = map_rows(k, t);
  vf bad = vf_zero();
  TGI_SWITCH_FLOAT(
      t->dtype, T, for (int64_t r = 0; r < k->rows; r++) {
        const void *from = row_at(k, map, r);
        bad = bad + widen_row_as(to + r * pitch, from, T, width, vf_set1(scale));
      });
  memset(to + k->rows * pitch, 0,
         (size_t)((round_up(k->rows, TGI_LANES) - k->rows) * pitch) * sizeof *to);
  return any_nan(bad);
}

/** Rows of a dense tile that hold a NaN or an infinity. A product would spread them to every
 * result, since 0 * NaN is NaN; so they are removed from the tile and added separately where they
 * are visible. */
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

/** Transposes dense rows [kBlockRows][pitch] to panels [kPanels][pitch][kPanel], as far as `rows`
 * reach. */
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

/** Transposes back; `to` has whole vectors of rows. */
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

/** The number of vectors of panel `panel` that hold rows of the block. */
static inline int64_t panel_vectors(const attention_block *k, int64_t panel)
{
  const int64_t rows = tgi_min_i64(kPanel, k->rows - panel * kPanel);
  return rows > 0 ? (rows + TGI_LANES - 1) / TGI_LANES : 0;
}

/** A part of a tile that is computed at once: keys [j0, j1) of the tile, whole TGI_TILE_ROWS, by
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

typedef void strip_work(void *arg, const strip *s, int64_t tile);

/** Calls `work` for the visible parts of a tile: whole panels where every row sees every key,
 * elsewhere single vectors with the range of keys that they need. */
static inline void each_strip(const attention_block *k, int64_t tile, int64_t keys,
                              strip_work *work, void *arg)
{
  for (int64_t panel = 0; panel < kPanels; panel++) {
    const int64_t vectors = panel_vectors(k, panel);
    const bool whole = keys % TGI_TILE_ROWS == 0 && tile >= k->all_begin[panel] &&
                       tile + keys <= k->all_end[panel];
    strip s = {.row = panel * kPanel, .vectors = vectors, .j0 = 0, .j1 = keys};
    if (whole && vectors > 0) {
      work(arg, &s, tile);
    }
    for (int64_t v = 0; v < vectors && !whole; v++) {
      if (mask_strip(k, panel * kPanel + v * TGI_LANES, tile, keys, &s)) {
        work(arg, &s, tile);
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
